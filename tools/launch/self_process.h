#pragma once
// Another process of this same program: how a program that trains starts its workers and coordinators. The words that
// are written here are read by the commands join and coordinate.
#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/training/elastic_job.h"

namespace elinvar {

// The program with these arguments, in a process group of its own so that Ctrl-C is not for it. With `apart` it has a
// session of its own, too, and outlives its terminal. Failure if it cannot be started.
pid_t start_self(std::vector<std::string> arguments, bool apart = false);

// Functions for JobOptions and WorkerOptions.
pid_t start_worker(const WorkerOptions& options);
void start_coordinator(const TakeoverOptions& options);

// How this process was called, program first.
std::vector<std::string> own_command_line();

}  // namespace elinvar
