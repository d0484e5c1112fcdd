#include "nn/initializers.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"
#include "tensor/ops/pointwise.h"
#include "tensor/philox.h"
#include "tensor/stream.h"

namespace elinvar::init {

namespace {

// Fills y with elements [first, first + n), of which `first` is a multiple of four.
void uniform_elements(float* y, int64_t first, int64_t n, uint64_t key, float bound) {
  for (int64_t i = 0; i < n; i += 4) {
    const int64_t block = (first + i) / 4;
    const Random4 r = philox(key, static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0);
    for (int64_t j = i; j < std::min(n, i + 4); ++j) y[j] = (2.0f * uniform01(r.v[j - i]) - 1.0f) * bound;
  }
}

void fill_uniform(Tensor& values, uint64_t key, float bound) {
  float* y = values.data<float>();
  const int64_t n = values.numel();
  cpu_stream().parallel_for((n + 3) / 4, 4096, [&](int64_t begin, int64_t end) {
    uniform_elements(y + 4 * begin, 4 * begin, std::min(n, 4 * end) - 4 * begin, key, bound);
  });
}

template <class Function>
void apply(const float* x, float* y, int64_t n) {
  unary(cpu_stream(), UnaryArgs{{x, DType::f32}, {y, DType::f32}, n, pointwise::UnaryFunctions::index_of<Function>()});
}

constexpr int64_t kPairs = 2048;  // of normal numbers, so many that intermediate results stay in cache

// The same, of at most 2 kPairs elements.
void normal_elements(float* y, int64_t first, int64_t n, uint64_t key, float mean, float deviation) {
  constexpr float kTwoPi = 6.2831853071795864769f;
  float radius[kPairs], angle[kPairs], cosine[kPairs], sine[kPairs];
  const int64_t pairs = (n + 1) / 2;
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
    y[2 * i] = mean + deviation * (radius[i] * cosine[i]);
    if (2 * i + 1 < n) y[2 * i + 1] = mean + deviation * (radius[i] * sine[i]);
  }
}

void fill_normal(Tensor& values, uint64_t key, float mean, float deviation) {
  float* y = values.data<float>();
  const int64_t n = values.numel();
  cpu_stream().parallel_for((n + 2 * kPairs - 1) / (2 * kPairs), 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * 2 * kPairs;
      normal_elements(y + first, first, std::min(n - first, 2 * kPairs), key, mean, deviation);
    }
  });
}

// Fills rows with elements(y, first, n), whose first must be a multiple of four and whose n at most 2 kPairs.
template <class Elements>
void fill_rows(std::span<const int64_t> index, Tensor& rows, Elements elements) {
  const int64_t channels = rows.dim(1);
  check(rows.contiguous() && rows.dim(0) == std::ssize(index), "[init] {} rows expected, shape is {}", index.size(),
        to_string(rows.shape()));
  float* y = rows.data<float>();
  cpu_stream().parallel_for(rows.dim(0), 2 * kPairs / (channels + 1) + 1, [&](int64_t begin, int64_t end) {
    float around[2 * kPairs];
    for (int64_t i = begin; i < end; ++i)
      for (int64_t c = 0; c < channels;) {
        const int64_t at = index[static_cast<size_t>(i)] * channels + c, first = at / 4 * 4;
        const int64_t n = std::min(channels - c, 2 * kPairs - 4);
        elements(around, first, at - first + n);
        std::copy_n(around + (at - first), n, y + i * channels + c);
        c += n;
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

RowInitializer uniform_rows(double bound) {
  return [bound](std::span<const int64_t> index, Tensor& rows, uint64_t key) {
    fill_rows(index, rows, [&](float* y, int64_t first, int64_t n) {
      uniform_elements(y, first, n, key, static_cast<float>(bound));
    });
  };
}

RowInitializer normal_rows(double deviation) {
  return [deviation](std::span<const int64_t> index, Tensor& rows, uint64_t key) {
    fill_rows(index, rows, [&](float* y, int64_t first, int64_t n) {
      normal_elements(y, first, n, key, 0.0f, static_cast<float>(deviation));
    });
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
