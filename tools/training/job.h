#pragma once
// What a configuration stands for: data, network and optimiser, with their state as one dictionary.
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "data/loader.h"
#include "nn/network.h"
#include "nn/optimizer.h"
#include "tensor/precision.h"
#include "tools/config/config.h"

namespace elinvar {

// One split of the data. `resolved`, if given, is set to config.data with the defaults of a registered kind.
std::shared_ptr<const Dataset> open_split(const Config& config, Split split, DataConfig* resolved = nullptr);

// What there is to say of the data since the last call (Dataset::take_notices), on stderr.
void tell_notices(const Dataset& data);

struct Job {
  // Opens a split of the data and builds the network; the settings of kinds in `config` get their defaults filled in.
  explicit Job(const Config& config, Split split = Split::train, Device device = {});

  Config config;
  Device device;                              // of the network and the optimiser
  Precision precision = Precision::portable;  // of products: as configured, where the device has them
  std::shared_ptr<const Dataset> data;
  std::unique_ptr<Network> network;
  std::unique_ptr<Network> average;  // of its weights, with optimizer.ema_decay; else none
  std::unique_ptr<Optimizer> optimizer;

  // "model.<parameter or buffer>", "average.<the same>" and "optimizer.<parameter>.<what>": views.
  StateDict state() const;
  void load(const StateDict& state);
  // The network that results are judged by: the average, if there is one.
  const Network& best() const { return average ? *average : *network; }
  // What best() is, from the newest good checkpoint of a run, into the network; returns its step. Says on stderr which
  // ones were passed over; Failure if none is good.
  int64_t load_network(const std::filesystem::path& run_directory);

  int64_t leaf_samples() const;  // the most samples that a virtual rank has in a step
};

// The configuration that a run was started with; UsageError if the directory holds no run.
Config read_run_config(const std::filesystem::path& run_directory);

struct Score {
  double loss = 0, accuracy = 0;  // means over targets that count
  int64_t samples = 0;
};

// What one batch of an evaluation adds up to.
struct BatchScore {
  double loss_sum = 0;
  int64_t count = 0, correct = 0, samples = 0;
};

// The network on share `share` of `shares` of a split: the split is cut, whole and in order, into batches of
// leaf_samples(), and those into shares. The batches of all shares in order give the score, whoever computed them.
// With `mirror`, what counts is the mean of the logits of an image and its mirror image. `each` is shown what the
// network says of each batch, with its targets.
using EachBatch = std::function<void(const Tensor& logits, const Tensor& target)>;
std::vector<BatchScore> score(const Job& job, std::shared_ptr<const Dataset> split, int share, int shares,
                              bool mirror = false, const EachBatch& each = {});

// Added batch by batch in binary64. Failure if no target counts.
Score sum(const std::vector<BatchScore>& batches);

}  // namespace elinvar
