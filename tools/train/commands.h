#pragma once
// The subcommands of `train`. Each returns an exit code, or throws UsageError (2) or Failure (3).
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/sampling.h"
#include "tensor/stream.h"
#include "tools/training/commands.h"

namespace elinvar {

int devices();  // what this machine computes with

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
