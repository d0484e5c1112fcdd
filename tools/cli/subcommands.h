#pragma once
// A program with subcommands. Each of them is one file with its options and its work: add_...() adds it to the program
// and returns how to run it. run() returns an exit code (0: done, or equal; 1: the answer is no), or throws UsageError
// (2) or Failure (3). With --json its result is one JSON object on stdout, and nothing else is printed there.
#include <functional>
#include <span>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace elinvar {

struct Command {
  CLI::App* app;
  std::function<int()> run;
};
using AddCommand = Command (*)(CLI::App& program);

// Runs the requested subcommand and returns the exit code for main(). Errors are printed on stderr after the program's
// name.
int run_subcommand(CLI::App& program, std::span<const AddCommand> commands, int argc, char** argv);

// Prints help, or what is wrong with the command line and the name that was probably meant. Returns the exit code.
int end_of_parsing(const CLI::App& program, const CLI::ParseError& error, int argc, char** argv);

}  // namespace elinvar
