#pragma once
// The configuration of a run: the content of CONFIG.toml with every default. CONFIG.md explains each key.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "data/dataset.h"
#include "data/mixing.h"
#include "elastic/ledger/ledger.h"
#include "autograd/loss.h"
#include "nn/optimizer.h"
#include "nn/schedule.h"
#include "tensor/base/spec.h"
#include "tensor/digest.h"
#include "tools/config/places.h"

namespace elinvar {

// Steps are counted in 32 bits where random numbers are keyed (tensor/philox.h).
inline constexpr double kMostSteps = 2147483648.0;
// Per step; the samples of kMostSteps such steps fit into 64 bits.
inline constexpr double kMostSamples = 2147483648.0;

struct RunConfig {
  std::string name;  // default: the file's name without .toml
  uint64_t seed = 0;
  int64_t steps = 0;  // exactly one of steps and epochs is positive
  double epochs = 0;
  int64_t batch_size = 0;  // samples per step of all workers
  int virtual_ranks = 1;   // a file without the key has default_virtual_ranks()
  std::string numerics = "portable";
  std::string precision = "";  // with numerics = "fast": "bf16" or "tf32"
  std::string scaling = "exact";
  int64_t grow_every = 0;  // epochs; 0: the batch does not grow by itself
  int64_t grow_factor = 2;
  int64_t batch_max = 0;  // required if adaptive, and if the batch grows
  int64_t ramp_steps = 100;
  int64_t state_digest_every = 100;
  int64_t checkpoint_every = 1000;
  int keep = 3;
  bool recompute = false;
  bool cuda_graphs = false;
  int64_t audit_every = 0;  // 0: never
  int64_t eval_every = 0;   // 0: only at the end
  int64_t log_every = 10;
  std::string data_plane = "auto";
  double group_timeout = 30;  // seconds
};

struct ReaderConfig {
  bool shuffle = true;
  int64_t augment_epochs = 0;
  Mixing mixing = {};
  int threads = 1;
  int prefetch = 4;
};

struct LedgerConfig {
  std::string leaves = "sample";
  int64_t tensors_every = 1;  // 0: never, except for the state
};

// The settings of what TensorBoard shows of a run (tools/training/event_file.h). Intervals in steps; 0: never.
struct TensorBoardConfig {
  bool scalars = true;
  int64_t histograms_every = 0, images_every = 0, text_every = 0;
  int64_t images = 8;
  std::string prompt = {};
  int64_t text_tokens = 100;

  bool any() const { return scalars || histograms_every > 0 || images_every > 0 || text_every > 0; }
};

struct Config {
  RunConfig run;
  Spec model;
  DataConfig data;
  ReaderConfig reader;  // keys of [data]
  CrossEntropyOptions loss;
  Spec task;  // without a kind: classification
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  LedgerConfig ledger;
  TensorBoardConfig tensorboard;
  Places places;                       // where the settings come from
  bool chooses_virtual_ranks = false;  // whether run.virtual_ranks is given; otherwise it is the default

  bool adaptive() const { return run.scaling == "adaptive"; }
  bool grows() const { return run.grow_every > 0; }
  int64_t largest_batch() const { return adaptive() || grows() ? run.batch_max : run.batch_size; }
  bool fast() const { return run.numerics == "fast"; }
  bool exact() const { return run.numerics == "exact"; }
  bool classifies() const { return task.kind.empty() || task.kind == "classification"; }
  LedgerOptions ledger_options() const;
  int64_t virtual_shards() const {  // of the network
    const auto found = model.settings.find("virtual_shards");
    const auto* shards = found == model.settings.end() ? nullptr : std::get_if<int64_t>(&found->second.value);
    return shards == nullptr ? 1 : *shards;
  }
};

// Returns one virtual rank for each 8 samples of a batch, from 1 to 4. More let more workers share the work, but batch
// norm sees the samples of one virtual rank at a time.
int default_virtual_ranks(int64_t batch_size);

// Throws UsageError naming file, line, key and nearest spelling. `name` stands for the text in messages and, without
// folder and suffix, is the default name of the run.
Config parse_config(std::string_view text, const std::string& name, const std::vector<std::string>& overrides = {});
Config read_config(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});

// The whole configuration as TOML that reads back as the same.
std::string to_toml(const Config& config);

// Every key that two configurations differ in and that a resumed run may not change, as "run.seed changed from 1 to 2".
std::vector<std::string> differences(const Config& before, const Config& now);

// Returns the settings that decide the results of a run, by key ("model" is one of them). Excludes those that a resumed
// run may change, the locations of data, and how often something is saved or digested.
std::map<std::string, std::string> decisive_settings(const Config& config);
Digest digest(const Config& config);  // of the decisive settings

}  // namespace elinvar
