#pragma once
// The split of a step's virtual ranks over workers of different speed.
#include <vector>

namespace elinvar::pool {

// `workers` equal workers, each of which computes `capability` virtual ranks a second.
struct DeviceGroup {
  int workers = 0;
  double capability = 0;
};

// EasyScale's formula (Li et al., SC'23): each worker of kind i gets A_i virtual ranks, so the step takes f = max A_i /
// C_i. Time is wasted where workers wait for the slowest, and where more ranks could be assigned than exist:
//   waste = sum N_i (C_i - A_i / f) + (sum N_i A_i - ranks) / f, here as a fraction of sum N_i C_i.
struct HeterogeneousSplit {
  double seconds = 0;      // f; infinite without workers
  double waste = 0;        // 0 to 1
  std::vector<int> ranks;  // A_i
};
HeterogeneousSplit heterogeneous_split(int ranks, const std::vector<DeviceGroup>& devices);

constexpr double kMostWaste = 0.3;  // allocations that waste more are not considered

}  // namespace elinvar::pool
