#pragma once
// A program of subcommands. Each of them is one file, with its options and what it does: add_...() adds it to the
// program and says how it is run. It returns an exit code (0: done, or equal; 1: the answer is no), or throws
// UsageError (2) or Failure (3). With --json its result is one JSON object on stdout, and nothing else is.
#include <functional>
#include <span>

namespace CLI {
class App;
}

namespace elinvar {

struct Command {
  CLI::App* app;
  std::function<int()> run;
};
using AddCommand = Command (*)(CLI::App& program);

// What main() returns: the exit code of the subcommand that was asked for. Errors are told on stderr, after the name of
// the program.
int run_subcommand(CLI::App& program, std::span<const AddCommand> commands, int argc, char** argv);

}  // namespace elinvar
