#pragma once
// Random numbers for traces and noise: the nth number is a function of the seed and the stream's name.
#include <cmath>
#include <numbers>
#include <string_view>

#include "tensor/philox.h"

namespace elinvar::pool {

class Dice {
 public:
  Dice(uint64_t seed, std::string_view stream) : seed_(seed), stream_(key_of(stream)) {}

  double uniform() {  // in (0, 1)
    const Random4 r = philox(seed_ ^ stream_, static_cast<uint32_t>(count_), static_cast<uint32_t>(count_ >> 32), 0, 0);
    ++count_;
    return (static_cast<double>(r.v[0]) * 0x1p32 + r.v[1] + 0.5) * 0x1p-64;
  }
  double exponential(double mean) { return -mean * std::log(uniform()); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  double lognormal(double median, double sigma) { return median * std::exp(sigma * normal()); }
  int below(int n) { return static_cast<int>(uniform() * n); }

 private:
  uint64_t seed_, stream_, count_ = 0;
};

}  // namespace elinvar::pool
