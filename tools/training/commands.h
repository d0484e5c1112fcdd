#pragma once
// The processes of a job: its coordinator, a coordinator that takes over, and a worker. Each function returns an exit
// code, or throws UsageError (2) or Failure (3).
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/stream.h"

namespace elinvar {

struct RunCommand {
  std::string config;
  std::string run_dir;  // empty: runs/<run.name>
  bool resume = false;
  std::string replay;  // the directory of a run that is done again (elastic/run/run_directory.h); empty: none
  std::vector<std::string> overrides;
  std::vector<std::string> command_line;                // for environment.json
  int workers = 1;                                      // that this process starts; 0: others join
  int min_workers = 1;                                  // with fewer the job holds
  bool any_build = false;                               // workers of others need not show that they compute its bits
  double hold = 600;                                    // seconds, where everyone who has the state is silent
  std::string device = "auto";                          // of each of them,
  int threads = 1;                                      // its CPU threads
  std::string isa = "auto";                             // and instruction set
  std::string listen = "tcp://127.0.0.1:0", advertise;  // comm/zmq_transport.h
  std::string key;                                      // the folder of the job's key; empty: none
  std::string chaos;                                    // faults on purpose (elastic/session/chaos.h)
  std::string text;                                     // of the configuration; empty: it is read from its file
  std::optional<int64_t> until;                         // the step to stop after, for now
  std::optional<int> metrics_port;                      // where Prometheus finds numbers; 0: any
  std::string metrics_address = "127.0.0.1";
  std::string profile;                // the steps to profile (tools/training/profiler.h); empty: none
  std::optional<int64_t> takes_over;  // elastic/run/run_directory.h
};
int run(const RunCommand& command);

struct JoinCommand {
  std::string endpoint;  // of the job's coordinator, or its run directory
  std::string listen = "tcp://127.0.0.1:0", advertise, key;
  std::vector<std::string> overrides;  // of what may differ between workers, such as data.path
  std::vector<std::string> command_line;
  std::string run_dir;  // where the run directory is on this host; empty: where the coordinator has it
  std::string name;     // for people and programs that started it; empty: none
  bool local = false;   // started by `train run`, which speaks for it
  Device device = {};
  std::string profile;
};
int join(const JoinCommand& command);

// What a worker starts when it finds that the coordinator of `tenure` is gone for good: goes on in its place.
struct CoordinateCommand {
  std::string run_dir;
  int64_t tenure = 0;
  std::string listen = "tcp://127.0.0.1:0", advertise, key;
  std::vector<std::string> command_line;
};
int coordinate(const CoordinateCommand& command);

}  // namespace elinvar
