#pragma once
// The optimiser's state of one worker in a job with ZeRO, as its session accesses it: that of the slices that the
// worker keeps and, while the worker begins with a checkpoint or with a new network, that of all others.
#include <optional>
#include <vector>

#include "elastic/checkpoint/checkpoint_reader.h"
#include "elastic/session/session.h"
#include "tools/training/training_setup.h"

namespace elinvar {

class ShardedState {
 public:
  explicit ShardedState(TrainingSetup& setup) : setup_(setup) {}

  // The state of other slices is in this checkpoint; null: it is zero, as in a new network.
  void restored(std::optional<CheckpointReader> checkpoint);

  ShardAccess access();

 private:
  std::vector<SliceRange> ranges(const Slice& slice) const;
  std::vector<StateSlice> state(const Slice& slice) const;
  void keep(std::vector<Slice> slices);
  void learned();

  TrainingSetup& setup_;
  std::optional<CheckpointReader> checkpoint_;
  bool begins_ = true;  // no update has been made since restored()
};

}  // namespace elinvar
