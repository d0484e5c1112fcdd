// pool: many jobs on machines that come and go.
#include <CLI/CLI.hpp>

#include "tools/pool/commands/commands.h"

namespace {

using namespace elinvar::pool;

constexpr Command (*kCommands[])(CLI::App&) = {add_serve,   add_submit, add_list,    add_status, add_cancel,
                                               add_history, add_sim,    add_measure, add_bench};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shares machines that come and go among training jobs.", "pool");
  app.set_version_flag("--version", "pool " ELINVAR_VERSION);
  app.footer(
      "To begin with: pool submit CONFIG.toml, pool serve, and pool list beside it; tools/pool/README.md has the "
      "rest.\n"
      "Exit codes: 0 done; 1 the answer is no; 2 wrong usage or configuration; 3 a failure.");
  return elinvar::run_subcommand(app, kCommands, argc, argv);
}
