#pragma once
// The processes of an elastic job: its coordinator, its workers, and a coordinator that takes over from one that is
// gone. Each function returns an exit code, or throws UsageError (2) or Failure (3). A process of a job starts others
// by the functions in its options; tools/launch/elastic_main.h has those by which a program starts itself.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace elinvar {

struct TakeoverOptions;

struct WorkerOptions {
  std::string endpoint;  // of the job's coordinator, or its run directory
  std::string listen = "tcp://127.0.0.1:0", advertise = {}, key = {};
  std::vector<std::string> overrides = {};  // of what may differ between workers, such as data.path
  std::vector<std::string> command_line = {};
  std::string run_dir = {};  // where the run directory is on this host; empty: where the coordinator has it
  std::string name = {};     // for people and programs that started it; empty: none
  bool local = false;        // started by the job's coordinator, which speaks for it
  std::string device = "auto";
  int threads = 0;  // of the CPU; 0: all that this process may use
  std::string isa = "auto";
  std::string profile = {};
  // Goes on in the place of a coordinator that is gone for good. Without it this worker waits until somebody else does.
  std::function<void(const TakeoverOptions&)> start_coordinator = {};
};

struct JobOptions {
  std::string config;        // its file
  std::string run_dir = {};  // empty: runs/<run.name>
  bool resume = false;
  std::string replay = {};  // the directory of a run that is done again (elastic/run/run_directory.h); empty: none
  std::vector<std::string> overrides = {};
  std::vector<std::string> command_line = {};  // for environment.json
  int workers = 1;                             // that this process starts; 0: others join
  int min_workers = 1;                         // with fewer the job holds
  bool any_build = false;                      // workers of others need not show that they compute its bits
  double hold = 600;                           // seconds, where everyone who has the state is silent
  // What each of the started workers computes with.
  std::string device = "auto";
  int threads = 0;  // of the CPU; 0: an equal share of what this process may use
  std::string isa = "auto";
  std::string listen = "tcp://127.0.0.1:0", advertise = {};  // comm/zmq_transport.h
  std::string key = {};                                      // the folder of the job's key; empty: none
  std::string chaos = {};                                    // fault injection (elastic/session/chaos.h)
  std::string text = {};                                     // of the configuration; empty: it is read from its file
  std::optional<int64_t> until = {};                         // the step to stop after, for now
  std::optional<int> metrics_port = {};                      // where Prometheus finds numbers; 0: any
  std::string metrics_address = "127.0.0.1";
  std::string profile = {};                // the steps to profile (tools/training/profiler.h); empty: none
  std::optional<int64_t> takes_over = {};  // elastic/run/run_directory.h
  std::function<pid_t(const WorkerOptions&)> start_worker = {};  // needed unless others join
};

struct TakeoverOptions {
  std::string run_dir;
  int64_t term = 0;  // of the coordinator that is gone
  std::string listen = "tcp://127.0.0.1:0", advertise = {}, key = {};
  std::vector<std::string> command_line = {};
  std::function<pid_t(const WorkerOptions&)> start_worker = {};
};

// Coordinates a job in this process until it is over. It never trains: it starts workers and keeps the run directory.
int run(const JobOptions& options);

// Takes part in a job as a worker until it is over, or this worker leaves. Sets the threads and the instruction set of
// this process.
int join(const WorkerOptions& options);

// Coordinates a job in the place of a coordinator that is gone.
int take_over(const TakeoverOptions& options);

}  // namespace elinvar
