#pragma once
// Starts this same program again: a training program starts its workers and coordinators like this. The commands join
// and coordinate read the words that are written here.
#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/training/elastic_job.h"

namespace elinvar {

// Starts the program with these arguments, in its own process group so that Ctrl-C does not reach it. With `apart` it
// also has its own session and outlives its terminal. Throws Failure if it cannot be started.
pid_t start_self(std::vector<std::string> arguments, bool apart = false);

// Functions for JobOptions and WorkerOptions.
pid_t start_worker(const WorkerOptions& options);
void start_coordinator(const TakeoverOptions& options);

// Returns this process's command line, program first.
std::vector<std::string> own_command_line();

}  // namespace elinvar
