// repro: proves that two runs are the same, or finds where they part.
#include <CLI/CLI.hpp>
#include <exception>
#include <vector>

#include "tensor/check.h"
#include "tools/repro/commands.h"

namespace {

constexpr elinvar::Command (*kCommands[])(CLI::App&) = {elinvar::add_diff,   elinvar::add_verify, elinvar::add_bisect,
                                                        elinvar::add_replay, elinvar::add_trace,  elinvar::add_env,
                                                        elinvar::add_digest, elinvar::add_report};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Proves that two runs are the same, or finds where they part.", "repro");
  app.set_version_flag("--version", "repro " ELINVAR_VERSION);
  app.require_subcommand(1);
  app.footer("Exit codes: 0 done, or equal; 1 the answer is no; 2 wrong usage; 3 a failure, or nothing to tell by.");
  std::vector<elinvar::Command> commands;
  for (const auto add : kCommands) commands.push_back(add(app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    for (const elinvar::Command& command : commands)
      if (*command.app) return command.run();
    return 2;
  } catch (const elinvar::UsageError& error) {
    fmt::print(stderr, "repro: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "repro: {}\n", error.what());
    return 3;
  }
}
