#include "tools/pool/profiling/heterogeneous_split.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace elinvar::pool {
namespace {

// Rounds up slightly, so that a time computed as A / C assigns A virtual ranks again.
int assigned(double seconds, double capability) {
  return static_cast<int>(std::floor(seconds * capability * (1 + 1e-12)));
}

}  // namespace

HeterogeneousSplit heterogeneous_split(int ranks, const std::vector<DeviceGroup>& devices) {
  HeterogeneousSplit best{.seconds = std::numeric_limits<double>::infinity(),
                          .ranks = std::vector<int>(devices.size(), 0)};
  double total = 0, fastest = 0;
  for (const DeviceGroup& d : devices)
    if (d.workers > 0) total += d.workers * d.capability, fastest = std::max(fastest, d.capability);
  if (total <= 0 || ranks <= 0) return best;
  // The least f at which all virtual ranks are assigned is one of A / C_i, between the even split and the fastest
  // device alone.
  const auto enough = [&](double f) {
    int64_t sum = 0;
    for (const DeviceGroup& d : devices) sum += int64_t{d.workers} * assigned(f, d.capability);
    return sum >= ranks;
  };
  double f = ranks / fastest;
  for (const DeviceGroup& d : devices) {
    if (d.workers == 0 || d.capability <= 0) continue;
    int low = std::max(1, static_cast<int>(std::floor(ranks / total * d.capability)));
    int high = std::max(low, static_cast<int>(std::ceil(f * d.capability)));
    // Finds the fewest virtual ranks of this kind at whose time all are assigned.
    while (low < high) {
      const int middle = (low + high) / 2;
      if (enough(middle / d.capability)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    if (enough(low / d.capability)) f = std::min(f, low / d.capability);
  }
  double waste = 0;
  int64_t sum = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    const DeviceGroup& d = devices[i];
    best.ranks[i] = d.workers > 0 ? assigned(f, d.capability) : 0;
    waste += d.workers * (d.capability - best.ranks[i] / f);
    sum += int64_t{d.workers} * best.ranks[i];
  }
  best.seconds = f;
  best.waste = std::clamp((waste + (sum - ranks) / f) / total, 0.0, 1.0);
  return best;
}

}  // namespace elinvar::pool
