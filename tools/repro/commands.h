#pragma once
// The subcommands of `repro`.
#include "tools/cli/subcommands.h"

namespace elinvar {

Command add_bisect(CLI::App& repro);
Command add_diff(CLI::App& repro);
Command add_digest(CLI::App& repro);
Command add_env(CLI::App& repro);
Command add_replay(CLI::App& repro);
Command add_report(CLI::App& repro);
Command add_trace(CLI::App& repro);
Command add_verify(CLI::App& repro);

}  // namespace elinvar
