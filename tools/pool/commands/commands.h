#pragma once
// The subcommands of `pool`.
#include <string>

#include "tools/cli/subcommands.h"

namespace elinvar::pool {

using elinvar::Command;

Command add_bench(CLI::App& pool);
Command add_cancel(CLI::App& pool);
Command add_history(CLI::App& pool);
Command add_list(CLI::App& pool);
Command add_measure(CLI::App& pool);
Command add_serve(CLI::App& pool);
Command add_sim(CLI::App& pool);
Command add_status(CLI::App& pool);
Command add_submit(CLI::App& pool);

// Adds the option --dir, which all commands that work with a pool have.
void add_directory(CLI::App& command, std::string& directory);

// Validates an option. Returns an error message unless the text is a finite number above 0, else "".
std::string positive(const std::string& text);

}  // namespace elinvar::pool
