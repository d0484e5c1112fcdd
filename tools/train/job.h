#pragma once
// What a configuration stands for: data, network and optimiser, with their state as one dictionary.
#include <filesystem>
#include <functional>
#include <memory>

#include "data/loader.h"
#include "nn/network.h"
#include "nn/optimizer.h"
#include "tools/config/config.h"

namespace elinvar {

// One split of the data.
std::shared_ptr<const Dataset> open_split(const Config& config, Split split);

struct Job {
  // Opens a split of the data and builds the network; config.model gets its defaults filled in.
  explicit Job(const Config& config, Split split = Split::train);

  Config config;
  std::shared_ptr<const Dataset> data;
  std::unique_ptr<Network> network;
  std::unique_ptr<Optimizer> optimizer;

  // "model.<parameter or buffer>" and "optimizer.<parameter>.<what>": views.
  StateDict state() const;
  void load(const StateDict& state);
  // The network's part alone, from the newest good checkpoint of a run; returns its step. Says on stderr which ones
  // were passed over; Failure if none is good.
  int64_t load_network(const std::filesystem::path& run_directory);

  int64_t leaf_samples() const;  // the most samples that a virtual rank has in a step
};

// The configuration that a run was started with; UsageError if the directory holds no run.
Config read_run_config(const std::filesystem::path& run_directory);

struct Score {
  double loss = 0, accuracy = 0;  // means over targets that count
  int64_t samples = 0;
};

// The network's score on a split, whole and in order, in batches of leaf_samples(). Sums are added batch by batch in
// binary64. `stop` is asked between batches; then what is there is returned with samples = 0.
Score score(const Job& job, std::shared_ptr<const Dataset> split, const std::function<bool()>& stop = {});

}  // namespace elinvar
