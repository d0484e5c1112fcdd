#pragma once
// The subcommands of `pool`. Each is one file, with its options and what it does: add_...() adds it to the program and
// says how it is run. It returns an exit code (0: done; 1: the answer is no), or throws UsageError (2) or Failure (3).
// With --json its result is one JSON object on stdout, and nothing else is.
#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace elinvar::pool {

struct Command {
  CLI::App* app;
  std::function<int()> run;
};

Command add_bench(CLI::App& pool);
Command add_cancel(CLI::App& pool);
Command add_history(CLI::App& pool);
Command add_list(CLI::App& pool);
Command add_serve(CLI::App& pool);
Command add_sim(CLI::App& pool);
Command add_status(CLI::App& pool);
Command add_submit(CLI::App& pool);

// --dir, which every command has that works with a pool.
void add_directory(CLI::App& command, std::string& directory);

}  // namespace elinvar::pool
