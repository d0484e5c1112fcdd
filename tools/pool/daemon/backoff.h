#pragma once
// Exponential back-off: waits 2, 4, 8 ... seconds after 1, 2, 3 ... failures in a row, and at most five minutes.
#include <algorithm>
#include <cmath>

namespace elinvar::pool {

constexpr double kLongestBackoff = 300;  // seconds

inline double backoff_seconds(int failures) { return std::min(kLongestBackoff, std::exp2(std::min(failures, 20))); }

}  // namespace elinvar::pool
