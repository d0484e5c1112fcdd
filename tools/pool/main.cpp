// pool: many jobs on machines that come and go.
#include <CLI/CLI.hpp>
#include <exception>
#include <vector>

#include "tensor/check.h"
#include "tools/pool/commands.h"

namespace {

using namespace elinvar::pool;

constexpr Command (*kCommands[])(CLI::App&) = {add_serve,  add_submit,  add_list, add_status,
                                               add_cancel, add_history, add_sim,  add_bench};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shares machines that come and go among training jobs.", "pool");
  app.set_version_flag("--version", "pool " ELINVAR_VERSION);
  app.require_subcommand(1);
  app.footer("Exit codes: 0 done; 1 the answer is no; 2 wrong usage or configuration; 3 a failure.");
  std::vector<Command> commands;
  for (const auto add : kCommands) commands.push_back(add(app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    for (const Command& command : commands)
      if (*command.app) return command.run();
    return 2;
  } catch (const elinvar::UsageError& error) {
    fmt::print(stderr, "pool: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "pool: {}\n", error.what());
    return 3;
  }
}
