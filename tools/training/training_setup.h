#pragma once
// The objects that a configuration describes: data, network and optimiser, with their state as one dictionary.
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "elastic/ledger/step_facts.h"
#include "elastic/protocol/gradient_layout.h"
#include "elastic/step/arrangement.h"
#include "elastic/step/model_replicas.h"
#include "data/loader.h"
#include "models/input_info.h"
#include "nn/network.h"
#include "nn/offload.h"
#include "nn/optimizer.h"
#include "nn/residence.h"
#include "nn/sliced_optimizer.h"
#include "nn/task.h"
#include "tensor/precision.h"
#include "tools/config/config.h"

namespace elinvar {

// Opens one split of the data. `resolved`, if given, is set to config.data with the defaults of a registered kind.
std::shared_ptr<const Dataset> open_split(const Config& config, Split split, DataConfig* resolved = nullptr);

// Returns the task that a configuration names, for these data. Fills in the defaults of its settings.
MadeTask task_of(Config& config, const Dataset& data);
InputInfo input_of(const Dataset& data, int64_t outputs);

// Returns the precision of products: the configured one if the device has it.
Precision precision_of(const Config& config, Device device);

// Prints the data set's notices since the last call (Dataset::take_notices) on stderr.
void print_notices(const Dataset& data);

struct TrainingSetup {
  // Opens a split of the data and builds the network. Fills in the default settings of registered kinds in `config`.
  // With ZeRO, from stage 1 on, there is a sliced optimiser that keeps nothing yet; with stage 3 the parameters of the
  // network are absent (nn/residence.h).
  // `opened`, if given, is that split of the data, and `config` has its resolved settings.
  explicit TrainingSetup(const Config& config, Split split = Split::train, Device device = {}, int zero = 0,
                         Offload offload = {}, std::shared_ptr<const Dataset> opened = nullptr);
  // Takes data that are open already.
  TrainingSetup(const Config& config, std::shared_ptr<const Dataset> data, Device device);

  Config config;
  Device device;                              // holds the network and, unless it is offloaded, the optimiser's state
  Offload offload;                            // where the optimiser's state is
  Precision precision = Precision::portable;  // precision_of() the configuration
  std::shared_ptr<const Dataset> data;
  Task task;
  std::unique_ptr<Network> network;
  // The network with the average of the weights; null without optimizer.ema_decay. With ZeRO its parameters are absent,
  // and `averages` has them in the slices of `sliced`; `average_source` is where others come from, to be set.
  std::unique_ptr<Network> average;
  std::unique_ptr<SlicedTensors> averages;
  ParameterSource* average_source = nullptr;
  std::unique_ptr<Optimizer> optimizer;     // null if sharded
  std::unique_ptr<SlicedOptimizer> sliced;  // null if not
  // With ZeRO-3: the parameters in the same slices; and where all others come from while they are used, to be set.
  std::unique_ptr<SlicedTensors> values;
  ParameterSource* source = nullptr;

  // Holds the state with another stage of ZeRO; what it is must be loaded afterwards. Throws what the constructor
  // throws.
  void hold(int zero);
  // As hold(), but the parameters, and the optimiser's state in these slices, remain. Parameters that were in slices
  // are whole then, with values in the slices that were kept and in no others.
  void keep(int zero, std::vector<Slice> slices);

  bool can_be_sliced() const;     // whether the state can be divided among workers (ZeRO)
  ShardOptions sharding() const;  // .. and how, if it can

  // Returns views of the state: "model.<parameter or buffer>", "average.<the same>" and "optimizer.<parameter>.<name>".
  // With ZeRO it has no averages of parameters and nothing of the optimiser, and with ZeRO-3 no parameters.
  StateDict state() const;
  void load(const StateDict& state);  // of the optimiser only if it is not sharded
  // Returns the network that validation uses: the average if there is one.
  const Network& best() const { return average ? *average : *network; }
  // Returns the source of the parameters of best() while it is used; null if they are in memory.
  ParameterSource* best_source() const { return average ? average_source : source; }
  // Loads the weights of best() from the newest good checkpoint of a run into the network, and returns the checkpoint's
  // step. Prints on stderr which checkpoints were passed over. Throws Failure if none is good.
  int64_t load_network(const std::filesystem::path& run_directory);

  int64_t rank_samples() const;  // the largest number of samples that a virtual rank has in a step

 private:
  void build_all(const Config& given, int zero = 0);
  bool segmented() const;
  std::unique_ptr<SlicedTensors> no_slices() const;
  std::unique_ptr<SlicedTensors> slices_of(const Parameters& whole, const std::vector<Slice>& slices) const;
  std::unique_ptr<SlicedOptimizer> sliced_optimizer() const;
};

// Returns the configuration that a run was started with. A relative path in it is made absolute if it leads somewhere
// from the folder in which the run was started; otherwise it is relative to the current folder. Throws UsageError if
// the directory holds no run.
Config read_run_config(const std::filesystem::path& run_directory);

// Returns the float32 output of best() for samples on the job's device, mostly logits; for several views of the same
// samples, the mean of their outputs. Uses no dropout. `loads` is as in predict().
Tensor output_of(const TrainingSetup& setup, std::span<const Inputs> views, ShardGroup& group = local_shards(),
                 std::vector<ExpertLoad>* loads = nullptr);

// Throws UsageError unless the network has the virtual shards that the arrangement deals to workers.
void check_arrangement(const Config& config, const Arrangement& arrangement);

// Throws UsageError if blocks do not keep their inputs alone, whose place `offload` names.
void check_offload(const Config& config, const Offload& offload);
// Throws UsageError if the job needs whole parameters on each worker. `segmented`: the network is a list of segments.
void check_can_be_absent(const Config& config, bool segmented);

// Scores the network on share `share` of `shares` of a split. The whole split is cut, in order, into batches of
// rank_samples(), and the batches into shares. The batches of all shares in order give the score, whichever process
// computed them. With `mirror`, the score uses the mean of the outputs of an image and its mirror image. `each`
// receives the outputs and the targets of each batch. The processes of a `group` compute the outputs together.
using EachBatch = std::function<void(const Tensor& output, const Tensor& target)>;
std::vector<BatchScore> score(const TrainingSetup& setup, std::shared_ptr<const Dataset> split, int share, int shares,
                              bool mirror = false, const EachBatch& each = {}, ShardGroup& group = local_shards());

// Adds the batches in order (NUMERICS.md, rule 29). Throws Failure if no target counts.
ValidationScore sum(const std::vector<BatchScore>& batches, const Task& task);

}  // namespace elinvar
