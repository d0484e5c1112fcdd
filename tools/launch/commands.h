#pragma once
// The subcommands of every program that trains elastically (tools/cli/subcommands.h).
#include "tools/cli/subcommands.h"

namespace elinvar {

Command add_run(CLI::App& program);         // trains, as a job's coordinator
Command add_resume(CLI::App& program);      // goes on with a run
Command add_join(CLI::App& program);        // trains, as a worker
Command add_coordinate(CLI::App& program);  // replaces a coordinator that is gone; started by workers
Command add_ctl(CLI::App& program);         // controls a running job
Command add_eval(CLI::App& program);        // scores a checkpoint of a run

}  // namespace elinvar
