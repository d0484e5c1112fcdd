#pragma once
// The bubbles of pipelines: the part of the time in which the members of a model replica compute no pass, measured in a
// step and predicted by the schedule (elastic/step/pipeline.h). Pure functions.
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "elastic/step/generation.h"

namespace elinvar {

// A pass of a rank gradient on a worker, in seconds since any moment.
struct PassSpan {
  int vrank = 0;
  bool backward = false;
  double begin = 0, end = 0;
};

struct PipelineBubble {
  int replica = 0;
  double measured = 0;                   // from the begin of its first pass to the end of its last
  std::optional<double> predicted = {};  // from the seconds of segments
  std::optional<double> scheduled = {};  // from the seconds of the passes; null if they have another order
};

// Returns the bubble of each model replica with several stages whose members have all computed passes. `seconds`: of
// both passes through each segment; if their number is another one, segments of a stage count alike. `passes`: of each
// worker by its id, ascending. A backward pass is predicted to take twice as long as a forward pass.
std::vector<PipelineBubble> pipeline_bubbles(const Generation& generation, std::span<const double> seconds,
                                             const std::map<int, std::vector<PassSpan>>& passes);

}  // namespace elinvar
