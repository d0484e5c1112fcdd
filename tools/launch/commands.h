#pragma once
// The subcommands of every program that trains elastically (tools/cli/subcommands.h).
#include "tools/cli/subcommands.h"

namespace elinvar {

Command add_run(CLI::App& program);         // trains: a job's coordinator
Command add_join(CLI::App& program);        // a worker
Command add_coordinate(CLI::App& program);  // a coordinator in the place of another; workers start it
Command add_ctl(CLI::App& program);         // asks a job that runs
Command add_eval(CLI::App& program);        // scores what a run has learnt

}  // namespace elinvar
