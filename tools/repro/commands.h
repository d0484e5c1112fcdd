#pragma once
// The subcommands of `repro`. Each is one file, with its options and what it does: add_...() adds it to the program and
// says how it is run. It returns an exit code (0: done, or equal; 1: the answer is no), or throws UsageError (2) or
// Failure (3). With --json its result is one JSON object on stdout, and nothing else is.
#include <functional>

namespace CLI {
class App;
}

namespace elinvar {

struct Command {
  CLI::App* app;
  std::function<int()> run;
};

Command add_bisect(CLI::App& repro);
Command add_diff(CLI::App& repro);
Command add_digest(CLI::App& repro);
Command add_env(CLI::App& repro);
Command add_replay(CLI::App& repro);
Command add_report(CLI::App& repro);
Command add_trace(CLI::App& repro);
Command add_verify(CLI::App& repro);

}  // namespace elinvar
