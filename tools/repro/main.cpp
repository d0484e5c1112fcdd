// repro: proves that two runs are the same, or finds where they part.
#include <CLI/CLI.hpp>

#include "tools/repro/commands.h"

namespace {

constexpr elinvar::AddCommand kCommands[] = {elinvar::add_diff,   elinvar::add_verify, elinvar::add_bisect,
                                             elinvar::add_replay, elinvar::add_trace,  elinvar::add_env,
                                             elinvar::add_digest, elinvar::add_report};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Proves that two runs are the same, or finds where they part.", "repro");
  app.set_version_flag("--version", "repro " ELINVAR_VERSION);
  app.footer("Exit codes: 0 done, or equal; 1 the answer is no; 2 wrong usage; 3 a failure, or nothing to tell by.");
  return elinvar::run_subcommand(app, kCommands, argc, argv);
}
