#pragma once
// Computes the global batch for a number of workers: Elan's hybrid scaling (Xie et al., ICDCS 2020). A pure function of
// measurements; the coordinator records its result in a planned generation.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "elastic/step/scaling_state.h"

namespace elinvar {

// The measured parts of a step's time; 0: not measured yet.
struct Profile {
  double sample_seconds = 0;    // for a worker to compute one sample
  double exchange_seconds = 0;  // for a reduction, for each worker beyond the first
};

// The measurements of a step with a whole batch: the leader's time from its last rank gradient to the sum; and for each
// member, beginning with the leader, its number of virtual ranks and the time of one.
struct MeasuredStep {
  int64_t batch = 0;
  int vranks = 1;
  double reduce_seconds = 0;
  std::vector<int> ranks = {};
  std::vector<double> rank_seconds = {};
};
// Returns the profile updated with another step, as moving averages. Time spent waiting for slower members does not
// count as exchange.
Profile measured(const Profile& profile, const MeasuredStep& step);

// Returns the number of workers that makes a step of a batch shortest, where the step takes
//   sample_seconds * (batch / vranks) * ceil(vranks / workers) + exchange_seconds * (workers - 1)
// Returns the smallest of several such numbers, and never more than there are virtual ranks. Without measurements it is
// the largest number that can take part.
int best_workers(int64_t batch, int vranks, const Profile& profile);

struct Scaled {
  int64_t batch = 0;
  std::string reason;
};
// Returns the batch for `workers`, where `base_workers` had the configured batch B. Among B, 2 B, 4 B ... up to workers
// / base_workers times B, it is the first batch that at least that many workers compute best (strong scaling); if there
// is none, it is workers / base_workers times B (weak scaling). The result is never more than batch_max, nor less than
// B. The same workers and measurements always give the same batch. With tensor parallelism model replicas count in
// place of workers, and `unit` says so in the reason.
Scaled scale(const ScalingOptions& options, int vranks, int base_workers, int workers, const Profile& profile,
             std::string_view unit = "workers");

}  // namespace elinvar
