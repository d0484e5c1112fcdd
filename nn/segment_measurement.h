#pragma once
// Measures the time and memory of each segment of a network, to divide it into the stages of a pipeline. Holds the
// values of one segment at a time.
#include <functional>
#include <vector>

#include "nn/stage.h"

namespace elinvar {

// Values of all virtual shards that a pass adds up or joins.
struct ShardSums {
  int count = 0;
  int64_t bytes = 0;  // of one shard's values, all together; a join counts as a sum of half the bytes that it gives
};

struct MeasuredSegment {
  double seconds = 0;  // of both passes
  double forward = 0;  // .. and of the forward pass
  int64_t held = 0;    // bytes of the device's memory between its two passes
  int64_t peak = 0;    // .. and at most, in both, without those of its gradients
  ShardSums forward_sums, backward_sums;
  Shape value = {};                        // what it gives; none for the head
  DType dtype = DType::f32;                // .. and its type
  std::vector<Statistic> statistics = {};  // of its batch norms, in the order in which they ran
};

struct SegmentTrials {
  int runs = 1;  // of a segment that takes no longer than `brief` seconds; of others one is measured
  double brief = 0.25;
  bool statistics = true;  // MeasuredSegment::statistics is wanted
  // Processes may measure at the same time: returns the greatest of the values that each of them calls it with, once
  // all have. What is decided by seconds they decide alike.
  std::function<double(double)> greatest = [](double value) { return value; };
};

// Runs the passes of a micro-batch through one segment after another, once to touch memory, and then to measure. If the
// first takes long, it is measured itself; of several runs the one with the median of seconds counts. A segment that
// does the same as an earlier one does not run, unless it has batch norms whose statistics are wanted. Gradients of
// values are taken to be 1. Without a residence, absent parameters (OutlineScope) are in memory only while their
// segment runs, with values that mean nothing.
std::vector<MeasuredSegment> measure_segments(const SegmentedNetwork& network, const Inputs& input,
                                              const Targets& targets, const Task& task, const Rng& rng,
                                              const SegmentPasses::Options& options, const SegmentTrials& trials = {});

// Returns for each segment the last one that reads a parameter of it, perhaps by way of others: both must be computed
// by the same process, so that it has the whole gradient of the parameter.
std::vector<int> homes_of(const SegmentedNetwork& network);

}  // namespace elinvar
