#pragma once
// Exponential back-off: 2, 4, 8 ... seconds after so many failures in a row, and never more than five minutes.
#include <algorithm>
#include <cmath>

namespace elinvar::pool {

constexpr double kLongestBackoff = 300;  // seconds

inline double backoff_seconds(int failures) { return std::min(kLongestBackoff, std::exp2(std::min(failures, 20))); }

}  // namespace elinvar::pool
