#pragma once
// Timing: the median of several runs after a warm-up, in seconds.
#include <algorithm>
#include <chrono>
#include <vector>

namespace elinvar::bench {

template <class F>
double median_seconds(int warm_up, int repeat, F&& f) {
  std::vector<double> times;
  for (int i = 0; i < warm_up + repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i >= warm_up) times.push_back(seconds);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace elinvar::bench
