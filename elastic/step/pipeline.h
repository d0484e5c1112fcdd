#pragma once
// Pipeline parallelism: the order in which the stages of a model replica compute the passes of their rank gradients. It
// is that of 1F1B (D. Narayanan et al., PipeDream, arXiv:1806.03377): a stage has no more rank gradients between their
// passes than there are stages from it on, and as many as that if it can. If a stage has several runs of segments, runs
// count instead of stages, and all but the last run may have one more. Pure functions: all members of a stage compute
// the same passes in the same order, and no two stages wait for each other.
#include <span>
#include <vector>

#include "elastic/step/model_replicas.h"

namespace elinvar {

// Adjacent segments of one stage. A stage has several runs if it computes a segment together with a later one.
struct PipelineRun {
  int stage = 0;
  Interval segments = {};
  bool operator==(const PipelineRun&) const = default;
};

// A pass of a rank gradient through a run.
struct PipelinePass {
  int vrank = 0;
  int run = 0;
  bool backward = false;
  bool operator==(const PipelinePass&) const = default;
};

// Returns the runs of a replica in the order of forward passes, given the segments of each stage.
std::vector<PipelineRun> runs_of(std::span<const std::vector<Interval>> stages);

// Returns the passes of each stage in order, for these virtual ranks, ascending.
std::vector<std::vector<PipelinePass>> pipeline_order(std::span<const PipelineRun> runs, int stages,
                                                      std::span<const int> vranks);

// Returns the passes of all stages in the order in which they end if all stages take equally long. An earlier pass of a
// stage comes before its later ones, and a pass that gives an input before those that need it.
std::vector<PipelinePass> passes_by_end(std::span<const PipelineRun> runs, int stages, std::span<const int> vranks);

// The seconds of the passes through a run.
struct PassSeconds {
  double forward = 0, backward = 0;
  double sent = 0;  // from the end of a pass to the beginning of the next run's, while the value or gradient travels
};

// Returns the seconds in which the stages compute `vranks` rank gradients in that order, with these times of each run.
double pipeline_seconds(std::span<const PipelineRun> runs, std::span<const PassSeconds> seconds, int stages,
                        int vranks);

}  // namespace elinvar
