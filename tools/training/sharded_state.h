#pragma once
// The state of one worker in a job with ZeRO, as its session accesses it: the optimiser's tensors, the averages of the
// parameters, and with ZeRO-3 the parameters, of the slices that the worker keeps and, while the worker begins with a
// checkpoint or with a new network, of all others. The stage may change while the job runs.
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/checkpoint/checkpoint_reader.h"
#include "elastic/session/session.h"
#include "tools/training/training_setup.h"

namespace elinvar {

class ParameterShards;
class UpdateRule;

class ShardedState {
 public:
  explicit ShardedState(TrainingSetup& setup);
  ~ShardedState();

  // Where parameters that are not there come from, and averages.
  void use(ParameterShards& parameters, ParameterShards& averages);
  // The state is that of this checkpoint, or zero as in a new network, and is held with this stage.
  void restored(int zero, std::optional<CheckpointReader> checkpoint);

  ShardAccess access();
  // Returns whether the worker has the parameters in a slice, or their averages.
  bool has(const Slice& slice, bool average) const;
  // Both return those that it has, one-dimensional.
  Tensor parameter(const Slice& slice) const;
  Tensor average(const Slice& slice) const;
  // Returns rows of a sparse table, or of its average, (rows, channels). They are ascending, and all in the slice.
  Tensor rows(const Slice& slice, std::span<const int64_t> rows, bool average) const;

 private:
  Tensor initial(const Slice& slice) const;
  Tensor initial_rows(const Slice& slice, std::span<const int64_t> rows) const;
  Tensor begun(const Slice& slice) const;
  std::vector<Slice> pieces_of(const Slice& slice) const;
  static std::optional<Tensor> kept_in(SlicedTensors& tensors, const Slice& slice);
  const Parameter& parameter_of(const Slice& slice) const;
  bool of_table(const Slice& slice) const;
  int64_t channels_of(const Slice& slice) const;  // .. of a table
  Tensor updated_rows(const Slice& slice) const;
  bool all_updated(const Slice& slice) const;
  Tensor updated(const Slice& slice) const;
  void put_updated(const Slice& slice, const Tensor& values);
  void use_sources();
  std::vector<SliceRange> ranges(const Slice& slice, int zero) const;
  std::vector<StateSlice> state(const Slice& slice, int zero) const;
  std::vector<TensorLayout> layout(int zero) const;
  void hold(int zero);
  void keep(int zero, std::vector<Slice> slices);
  void learns(int zero);

  TrainingSetup& setup_;
  // Of the optimiser's tensors of a parameter, for dense ones and for sparse tables; null for a registered kind.
  std::unique_ptr<UpdateRule> rule_, table_rule_;
  ParameterShards *source_ = nullptr, *average_source_ = nullptr;
  std::optional<CheckpointReader> checkpoint_;
  bool begins_ = true;  // no update has been made since restored()
  // The parameter whose initial values were computed last, of which other slices may follow.
  struct Initial {
    std::mutex mutex;
    int parameter = -1;
    Tensor values;
  };
  mutable Initial initial_;
};

}  // namespace elinvar
