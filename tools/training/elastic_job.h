#pragma once
// The processes of an elastic job: its coordinator, its workers, and a coordinator that takes over from one that is
// gone. Each function returns an exit code, or throws UsageError (2) or Failure (3). A process of a job starts others
// through the functions in its options; tools/launch/elastic_main.h provides those with which a program starts itself.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "elastic/step/arrangement_forecasts.h"

namespace elinvar {

struct TakeoverOptions;

struct WorkerOptions {
  std::string endpoint;  // the endpoint of the job's coordinator, or the job's run directory
  // comm/zmq_transport.h; empty: a free port of the address from which this host reaches the coordinator.
  std::string listen = {}, advertise = {};
  std::string key = {};
  std::vector<std::string> overrides = {};  // settings that may differ between workers, such as data.path
  std::vector<std::string> command_line = {};
  std::string run_dir = {};  // the run directory on this host; empty: the coordinator's path
  std::string name = {};     // a label for people and for the program that started the worker; may be empty
  bool local = false;        // started by the job's coordinator, which prints messages for it
  std::string device = "auto";
  int threads = 0;  // CPU threads; 0: all that this process may use
  std::string isa = "auto";
  std::string offload = "none";  // nn/offload.h
  std::string profile = {};
  // Starts a coordinator in place of one that is gone for good. If empty, this worker waits until another process
  // starts one.
  std::function<void(const TakeoverOptions&)> start_coordinator = {};
};

struct JobOptions {
  std::string config;        // the path of the configuration file
  std::string run_dir = {};  // empty: runs/<run.name>
  bool resume = false;
  std::string replay = {};  // the directory of a run to repeat (elastic/run/run_directory.h); empty: none
  std::vector<std::string> overrides = {};
  std::vector<std::string> command_line = {};  // recorded in environment.json
  int workers = 1;                             // the number that this process starts; 0: others join
  int min_workers = 1;                         // the job holds while it has fewer
  bool any_build = false;                      // joining workers need not prove that they compute the same bits
  Arrangement arrangement = {};
  ArrangementForecasts forecasts = {};  // the job changes to better arrangements by itself
  double hold = 600;                    // seconds to wait for the first worker, and while all with the state are silent
  // The device on which each started worker computes.
  std::string device = "auto";
  int threads = 0;  // CPU threads of each started worker; 0: an equal share of what this process may use
  std::string isa = "auto";
  std::string offload = "none";                              // nn/offload.h
  std::string listen = "tcp://127.0.0.1:0", advertise = {};  // comm/zmq_transport.h
  std::string key = {};                                      // the folder of the job's key; empty: no key
  std::string chaos = {};                                    // fault injection (elastic/session/chaos.h)
  std::string text = {};                 // the text of the configuration; empty: it is read from `config`
  std::optional<int64_t> until = {};     // the step at which this part of the run stops
  std::optional<int> metrics_port = {};  // the port that serves metrics to Prometheus; 0: any free port
  std::string metrics_address = "127.0.0.1";
  std::string profile = {};                // the steps to profile (tools/training/profiler.h); empty: none
  std::optional<int64_t> takes_over = {};  // elastic/run/run_directory.h
  std::function<pid_t(const WorkerOptions&)> start_worker = {};  // required if `workers` is not 0
};

struct TakeoverOptions {
  std::string run_dir;
  int64_t term = 0;  // the term of the coordinator that is gone
  std::string listen = "tcp://127.0.0.1:0", advertise = {}, key = {};
  std::vector<std::string> command_line = {};
  std::function<pid_t(const WorkerOptions&)> start_worker = {};
};

// Coordinates a job in this process until it is over. It never trains: it starts workers and keeps the run directory.
int run(const JobOptions& options);

// Takes part in a job as a worker until the job is over or this worker leaves. Sets the threads and the instruction set
// of this process.
int join(const WorkerOptions& options);

// Coordinates a job in place of a coordinator that is gone.
int take_over(const TakeoverOptions& options);

}  // namespace elinvar
