#pragma once
// Timing: the median of several runs after a warm-up, in seconds. Single-threaded work of the CPU is timed by the
// thread's own clock, which other programs disturb less. Work on a GPU must have ended when the function returns.
#include <time.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tensor/stream.h"

namespace elinvar::bench {

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

inline double seconds_now(Device device = {}) {
  timespec t;
  const bool alone = device == Device{} && cpu_stream().threads() == 1;
  clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class F>
double seconds_of(F&& f, Device device = {}) {
  const double start = seconds_now(device);
  f();
  return seconds_now(device) - start;
}

template <class F>
double median_seconds(int warm_up, int repeat, F&& f, Device device = {}) {
  std::vector<double> times;
  for (int i = 0; i < warm_up + repeat; ++i) {
    const double seconds = seconds_of(f, device);
    if (i >= warm_up) times.push_back(seconds);
  }
  return median(std::move(times));
}

}  // namespace elinvar::bench
