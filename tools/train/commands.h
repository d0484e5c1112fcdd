#pragma once
// The subcommands of `train`. Each returns an exit code, or throws UsageError (2) or Failure (3).
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/sampling.h"
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
  std::string profile;                // the steps to profile (tools/train/profiler.h); empty: none
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

int devices();  // what this machine computes with

// What a worker starts when it finds that the coordinator of `tenure` is gone for good: goes on in its place.
struct CoordinateCommand {
  std::string run_dir;
  int64_t tenure = 0;
  std::string listen = "tcp://127.0.0.1:0", advertise, key;
  std::vector<std::string> command_line;
};
int coordinate(const CoordinateCommand& command);

struct CtlCommand {
  std::string job;    // a run directory or an endpoint
  std::string what;   // status, scale, drain, checkpoint, stop
  std::string which;  // so many workers, or a worker by its number or name
  bool json = false;
  bool watch = false;  // the status again and again
  std::string listen = "tcp://127.0.0.1:0", key;
};
int ctl(const CtlCommand& command);

struct PlotCommand {
  std::vector<std::string> runs;     // their directories
  std::vector<std::string> metrics;  // empty: loss, accuracy and rate
  int width = 0, height = 12;        // 0: as wide as the terminal; rows of a chart
  bool ascii = false, logarithmic = false;
};
int plot(const PlotCommand& command);

struct EvalCommand {
  std::string run_dir;
  std::string split = "validation";
  bool mirror = false;    // by the mean of the logits of an image and its mirror image
  bool json = false;      // the score as JSON
  std::string confusion;  // a .csv file to write: how often each class was taken for each; empty: none
  Device device = {};
};
int eval(const EvalCommand& command);

struct ProfileCommand {
  std::string run_dir;
};
int show_profile(const ProfileCommand& command);

struct SampleCommand {
  std::string run_dir;
  std::optional<std::string> prompt;  // none: what stdin has, but for one newline at its end
  int64_t tokens = 256;               // at most, of each text
  int64_t count = 1;                  // of texts
  Sampling sampling = {};
  uint64_t seed = 0;
  bool cached = true;  // keys and values of earlier tokens are kept: quicker, the same text
  bool json = false;   // a line of JSON for each text
  Device device = {};
};
int sample(const SampleCommand& command);

// A run directory whose run begins with the weights of a file (models/published.h).
struct ImportCommand {
  std::string weights, config, run_dir;
  std::vector<std::string> except;  // patterns of parameters that stay as a new network has them
  std::vector<std::string> overrides;
};
int import_weights(const ImportCommand& command);

struct ExportCommand {
  std::string run_dir, out;
};
int export_weights(const ExportCommand& command);

int keygen(const std::string& folder);  // makes the key of a job there

}  // namespace elinvar
