#pragma once
// Timing: the median of several runs after a warm-up, in seconds.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace elinvar::bench {

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

template <class F>
double median_seconds(int warm_up, int repeat, F&& f) {
  std::vector<double> times;
  for (int i = 0; i < warm_up + repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i >= warm_up) times.push_back(seconds);
  }
  return median(std::move(times));
}

}  // namespace elinvar::bench
