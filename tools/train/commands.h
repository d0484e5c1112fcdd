#pragma once
// The subcommands of `train`. Each returns an exit code, or throws UsageError (2) or Failure (3).
#include <cstdint>
#include <string>
#include <vector>

namespace elinvar {

struct RunCommand {
  std::string config;
  std::string run_dir;  // empty: runs/<run.name>
  bool resume = false;
  std::vector<std::string> overrides;
  std::vector<std::string> command_line;  // for environment.json
};
int run(const RunCommand& command);

struct EvalCommand {
  std::string run_dir;
  std::string split = "validation";
};
int eval(const EvalCommand& command);

struct SampleCommand {
  std::string run_dir, prompt;
  int64_t tokens = 256;
  double temperature = 1.0;  // 0: always the likeliest
  int64_t top_k = 0;         // 0: all
  uint64_t seed = 0;
};
int sample(const SampleCommand& command);

int keygen(const std::string& folder);  // makes the key of a job there

}  // namespace elinvar
