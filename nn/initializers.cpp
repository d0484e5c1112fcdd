#include "nn/initializers.h"

#include <algorithm>
#include <cmath>

#include "autograd/pointwise.h"
#include "tensor/check.h"
#include "tensor/philox.h"
#include "tensor/stream.h"

namespace elinvar::init {

namespace {

// Calls f(block, words) for the blocks that make n elements; f writes elements 4 block .. 4 block + 3.
template <class F>
void for_each_block(int64_t n, uint64_t key, F f) {
  cpu_stream().parallel_for((n + 3) / 4, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      f(i, philox(key, static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0));
  });
}

void fill_uniform(Tensor& values, uint64_t key, float bound) {
  float* y = values.data<float>();
  const int64_t n = values.numel();
  for_each_block(n, key, [&](int64_t block, const Random4& r) {
    for (int64_t i = 4 * block; i < std::min(n, 4 * block + 4); ++i)
      y[i] = (2.0f * uniform01(r.v[i % 4]) - 1.0f) * bound;
  });
}

void fill_normal(Tensor& values, uint64_t key, float mean, float deviation) {
  constexpr float kTwoPi = 6.2831853071795864769f;
  const int64_t n = values.numel(), pairs = 2 * ((n + 3) / 4);
  Tensor u = Tensor::empty({pairs}), angle = Tensor::empty({pairs});
  float *up = u.data<float>(), *ap = angle.data<float>();
  for_each_block(n, key, [&](int64_t block, const Random4& r) {
    for (int64_t i = 0; i < 2; ++i) {
      up[2 * block + i] = 1.0f - uniform01(r.v[2 * i]);
      ap[2 * block + i] = kTwoPi * uniform01(r.v[2 * i + 1]);
    }
  });
  const NoGrad constant;
  const Var radius = sqrt(log(Var(u)) * -2.0);
  const Tensor first = (radius * cos(Var(angle))).value(), second = (radius * sin(Var(angle))).value();
  const float *fp = first.data<float>(), *sp = second.data<float>();
  float* y = values.data<float>();
  cpu_stream().parallel_for((n + 1) / 2, 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      y[2 * i] = mean + deviation * fp[i];
      if (2 * i + 1 < n) y[2 * i + 1] = mean + deviation * sp[i];
    }
  });
}

void check_weight(const Tensor& weight) {
  check(weight.ndim() >= 2 && weight.numel() > 0, "[init] a weight of two or more dimensions expected, shape is {}",
        to_string(weight.shape()));
}

}  // namespace

Initializer constant(double value) {
  return [value](Tensor& values, uint64_t) { std::ranges::fill(values.span<float>(), static_cast<float>(value)); };
}

Initializer uniform(double bound) {
  return [bound](Tensor& values, uint64_t key) { fill_uniform(values, key, static_cast<float>(bound)); };
}

Initializer normal(double deviation, double mean) {
  return [deviation, mean](Tensor& values, uint64_t key) {
    fill_normal(values, key, static_cast<float>(mean), static_cast<float>(deviation));
  };
}

Initializer fan_in_uniform() {
  return [](Tensor& weight, uint64_t key) {
    check_weight(weight);
    const auto fan_in = static_cast<double>(weight.numel() / weight.dim(0));
    fill_uniform(weight, key, static_cast<float>(1.0 / std::sqrt(fan_in)));
  };
}

Initializer kaiming_normal() {
  return [](Tensor& weight, uint64_t key) {
    check_weight(weight);
    const auto fan_out = static_cast<double>(weight.numel() / weight.dim(-1));
    fill_normal(weight, key, 0.0f, static_cast<float>(std::sqrt(2.0 / fan_out)));
  };
}

}  // namespace elinvar::init
