#pragma once
// The rule of exact products (tensor/quantized.h) in plain int64 and float64, and the kernels in all their versions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tensor/isa.h"
#include "tensor/philox.h"
#include "tensor/quantized.h"
#include "tensor/stream.h"
#include "tests/support/amx_model.h"
#include "tests/support/other_devices.h"

namespace elinvar::test {

enum class Magnitudes { normal, largest, mixed, endless };

// Normal values whose magnitudes differ by channel; values that round to +-8191; all magnitudes, with zeros of
// either sign, subnormals and the largest numbers; or these with some infinities and NaN.
inline Tensor random_factor(const Shape& shape, uint64_t seed, Magnitudes values = Magnitudes::normal) {
  Tensor x = Tensor::empty(shape, DType::f32);
  const int64_t channels = shape[shape.ndim() - 1];
  for (int64_t i = 0; i < x.numel(); ++i) {
    const Random4 random = philox(seed, static_cast<uint32_t>(i), 0, 0, 0);
    const uint32_t* bits = random.v;
    const float u = static_cast<float>(static_cast<int32_t>(bits[0])) * 0x1p-31f;
    if (values == Magnitudes::largest) x.data<float>()[i] = std::copysign(1.9999999f, u);
    else if (values == Magnitudes::normal)
      x.data<float>()[i] = u * u * u * std::ldexp(1.0f, static_cast<int>(i % channels % 7) - 3);
    else
      x.data<float>()[i] =
          bits[1] % 5 == 0 ? std::copysign(0.0f, u) : std::ldexp(u, static_cast<int>(bits[2] % 270) - 142);
    if (values == Magnitudes::endless && bits[3] % (x.numel() / 2 + 1) == 0)
      x.data<float>()[i] = bits[1] % 2 == 0 ? std::copysign(std::numeric_limits<float>::infinity(), u) : std::nanf("");
  }
  return x;
}

// Element (r, p, c) of a quantized tensor as the integer.
inline int64_t integer_at(const Quantized& x, int64_t r, int64_t p, int64_t c) {
  const auto* q = static_cast<const int16_t*>(x.q.raw());
  const int64_t positions = x.q.dim(1), width = x.q.dim(2);
  return x.pairs == Pairs::channels ? q[(r * positions + p) * width * 2 + c]
                                    : q[((r / 2 * positions + p) * width + c) * 2 + r % 2];
}

// The rule in one expression each.
inline int32_t exponent_of(double largest) {
  if (!std::isfinite(largest)) return kNotFinite;
  int e = 0;
  std::frexp(largest, &e);
  return largest == 0.0 ? kLeastExponent : std::max(e, kLeastExponent);
}
inline int64_t nearest_integer(double x) {
  return static_cast<int64_t>(
      std::clamp(std::nearbyint(x), -static_cast<double>(kMostQuantized), static_cast<double>(kMostQuantized)));
}
inline float finished_sum(int64_t sum, int64_t exponent) {
  if (exponent > kNotFinite / 2) return std::nanf("");
  return static_cast<float>(std::ldexp(static_cast<double>(static_cast<float>(sum)),
                                       static_cast<int>(std::max<int64_t>(exponent - 26, -2000))));
}

// Calls f with every set of instructions and several numbers of threads.
inline void with_every_kernel(const std::function<void(const std::string&)>& f) {
  for (const Isa isa : available_isas()) {
    set_isa(isa);
    for (const PairUnits units : kAllPairUnits) {
      if (units == PairUnits::tiles && isa != available_isas().back()) continue;  // their kernel is the same
      use_units(units);
      for (const int threads : {1, 3, 8}) {
        CpuStream stream(threads);
        const StreamScope scope(stream);
        f(fmt::format("{}, {} threads, {}", name_of(isa), threads, name_of(units)));
      }
    }
  }
  set_isa(available_isas().back());
  use_best_units();
}

// The test of a device gives its ops the same inputs, and expects of them the same results.
class ExactTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  bool on_cpu() const { return device_.kind == DeviceKind::cpu; }
  Tensor sent(const Tensor& x) const { return x.to(device_); }

  // Calls f on the device; on CPUs with every set of instructions and several numbers of threads.
  void everywhere(const std::function<void()>& f) const {
    if (!on_cpu()) return f();
    with_every_kernel([&](const std::string& how) {
      SCOPED_TRACE(how);
      f();
    });
  }
  const Device device_ = GetParam();
};

inline std::vector<Device> all_devices() {
  std::vector<Device> devices = devices_of_the_build();
  devices.push_back({});
  return devices;
}

}  // namespace elinvar::test
