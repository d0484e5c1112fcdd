#pragma once
// How large the global batch is for a number of workers: Elan's hybrid scaling (Xie et al., ICDCS 2020). A pure
// function of measurements; the coordinator records what it says in a planned generation.
#include <cstdint>
#include <string>
#include <vector>

#include "elastic/step/scaling_state.h"

namespace elinvar {

// How the time of a step divides, as far as it has been measured; 0: not yet.
struct Profile {
  double sample_seconds = 0;    // that a worker computes for one sample
  double exchange_seconds = 0;  // that a reduction takes for each worker beyond the first
};

// What was measured in a step with a whole batch: the leader's time from its last leaf to the sum; and of each member,
// the leader first, its virtual ranks and the time of one.
struct MeasuredStep {
  int64_t batch = 0;
  int vranks = 1;
  double reduce_seconds = 0;
  std::vector<int> leaves = {};
  std::vector<double> leaf_seconds = {};
};
// With another step taken into account: moving averages. Waiting for slower members is no exchange.
Profile measured(const Profile& profile, const MeasuredStep& step);

// How many workers make a step of a batch the shortest, by
//   sample_seconds * (batch / vranks) * ceil(vranks / workers) + exchange_seconds * (workers - 1)
// the least of several; never more than there are virtual ranks. Without measurements: all that can take part.
int best_workers(int64_t batch, int vranks, const Profile& profile);

struct Scaled {
  int64_t batch = 0;
  std::string reason;
};
// The batch for `workers`, where `base_workers` had the configured batch B. Of B, 2 B, 4 B ... up to workers /
// base_workers times B the first that is best computed by at least so many workers (strong scaling); if none is,
// workers / base_workers times B (weak scaling). Never more than batch_max, nor less than B. The same workers and
// measurements give the same batch, whatever was before.
Scaled scale(const ScalingOptions& options, int vranks, int base_workers, int workers, const Profile& profile);

}  // namespace elinvar
