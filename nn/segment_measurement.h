#pragma once
// What each segment of a network takes and gives, found by running it: what is to be known to divide the network into
// the stages of a pipeline. Only one segment's values are held at a time.
#include <vector>

#include "nn/stage.h"

namespace elinvar {

struct MeasuredSegment {
  double seconds = 0;                      // of both passes
  int64_t held = 0;                        // bytes of the CPU's memory between its two passes
  int64_t peak = 0;                        // .. and at most, in both, without those of its gradients
  Shape value = {};                        // what it gives; none for the head
  std::vector<Statistic> statistics = {};  // of its batch norms, in the order in which they ran
};

// Runs the passes of a micro-batch through one segment after another; gradients of values are taken to be 1.
std::vector<MeasuredSegment> measure_segments(const SegmentedNetwork& network, const Tensor& input,
                                              const Targets& targets, const LossOptions& loss, const Rng& rng,
                                              const SegmentPasses::Options& options);

// Returns for each segment the last one that reads a parameter of it, perhaps by way of others: both must be computed
// by the same process, so that it has the whole gradient of the parameter.
std::vector<int> homes_of(const SegmentedNetwork& network);

}  // namespace elinvar
