#include "nn/initializers.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"
#include "tensor/ops/pointwise.h"
#include "tensor/philox.h"
#include "tensor/stream.h"

namespace elinvar::init {

namespace {

void fill_uniform(Tensor& values, uint64_t key, float bound) {
  float* y = values.data<float>();
  const int64_t n = values.numel();
  cpu_stream().parallel_for((n + 3) / 4, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const Random4 r = philox(key, static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0);
      for (int64_t i = 4 * block; i < std::min(n, 4 * block + 4); ++i)
        y[i] = (2.0f * uniform01(r.v[i % 4]) - 1.0f) * bound;
    }
  });
}

template <class Function>
void apply(const float* x, float* y, int64_t n) {
  unary(cpu_stream(), UnaryArgs{{x, DType::f32}, {y, DType::f32}, n, pointwise::UnaryFunctions::index_of<Function>()});
}

void fill_normal(Tensor& values, uint64_t key, float mean, float deviation) {
  constexpr float kTwoPi = 6.2831853071795864769f;
  constexpr int64_t kPairs = 2048;  // so many that intermediate results stay in cache
  float* y = values.data<float>();
  const int64_t n = values.numel();
  cpu_stream().parallel_for((n + 2 * kPairs - 1) / (2 * kPairs), 1, [&](int64_t begin, int64_t end) {
    float radius[kPairs], angle[kPairs], cosine[kPairs], sine[kPairs];
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * 2 * kPairs, pairs = std::min(kPairs, (n - first + 1) / 2);
      for (int64_t i = 0; i < pairs; i += 2) {
        const int64_t block = (first + 2 * i) / 4;
        const Random4 r = philox(key, static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0);
        for (const int64_t j : {0, 1}) {
          radius[i + j] = 1.0f - uniform01(r.v[2 * j]);
          angle[i + j] = kTwoPi * uniform01(r.v[2 * j + 1]);
        }
      }
      apply<pointwise::Log>(radius, radius, pairs);
      for (int64_t i = 0; i < pairs; ++i) radius[i] = -2.0f * radius[i];
      apply<pointwise::Sqrt>(radius, radius, pairs);
      apply<pointwise::Cos>(angle, cosine, pairs);
      apply<pointwise::Sin>(angle, sine, pairs);
      for (int64_t i = 0; i < pairs; ++i) {
        const int64_t at = first + 2 * i;
        y[at] = mean + deviation * (radius[i] * cosine[i]);
        if (at + 1 < n) y[at + 1] = mean + deviation * (radius[i] * sine[i]);
      }
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

Initializer xavier_uniform() {
  return [](Tensor& weight, uint64_t key) {
    check_weight(weight);
    const auto fans = static_cast<double>(weight.numel() / weight.dim(0) + weight.numel() / weight.dim(-1));
    fill_uniform(weight, key, static_cast<float>(std::sqrt(6.0 / fans)));
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
