#include "tensor/quantized.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/quantize.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/op_check.h"
#include "tensor/quantize-inl.h"
#include "tensor/tile.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Returns the largest magnitude of x[i] scale[i], i < n.
int32_t largest(const float* x, const float* scale, int64_t n, int32_t most) {
  for (int64_t i = 0; i < n; ++i) most = std::max(most, magnitude(x[i] * scale[i]));
  return most;
}

// most[i] = max(most[i], x[i] scale)
void raise(const float* x, float scale, int64_t n, int32_t* most) {
  for (int64_t i = 0; i < n; ++i) most[i] = std::max(most[i], magnitude(x[i] * scale));
}

// q[i] = x[i] scale[i] times
void quantize(const float* x, const float* scale, float times, int64_t n, int16_t* q) {
  for (int64_t i = 0; i < n; ++i) q[i] = static_cast<int16_t>(quantized(x[i] * scale[i] * times));
}

// Pairs x[i] x_scale times[i] with y[i] y_scale times[i]; y may be null.
void quantize_pairs(const float* x, float x_scale, const float* y, float y_scale, const float* times, int64_t n,
                    int32_t* q) {
  if (!y) {
    for (int64_t i = 0; i < n; ++i) q[i] = pair_of(quantized(x[i] * x_scale * times[i]), 0);
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    q[i] = pair_of(quantized(x[i] * x_scale * times[i]), quantized(y[i] * y_scale * times[i]));
}

// Pairs x[i] with y[i]; y may be null.
void interleave_rows(const int16_t* x, const int16_t* y, int64_t n, int32_t* q) {
  if (!y) {
    for (int64_t i = 0; i < n; ++i) q[i] = pair_of(x[i], 0);
    return;
  }
  for (int64_t i = 0; i < n; ++i) q[i] = pair_of(x[i], y[i]);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(largest);
HWY_EXPORT(raise);
HWY_EXPORT(quantize);
HWY_EXPORT(quantize_pairs);
HWY_EXPORT(interleave_rows);

namespace {

constexpr int64_t kPiece = 1 << 15;  // elements that a thread takes at a time

// Factors 2^(against - most), and most.
struct Relative {
  std::vector<float> scale;
  int32_t most = 0;
  explicit Relative(const Tensor& against) : scale(static_cast<size_t>(against.numel())) {
    const int32_t* e = against.data<int32_t>();
    if (!scale.empty()) most = *std::max_element(e, e + scale.size());
    for (size_t i = 0; i < scale.size(); ++i)
      scale[i] = e[i] - most < kLeastRelative ? 0.0f : power_of_two(e[i] - most);
  }
};

Tensor negated(const Tensor& exponents) {
  Tensor y = Tensor::empty(exponents.shape(), DType::i32);
  std::transform(exponents.data<int32_t>(), exponents.data<int32_t>() + exponents.numel(), y.data<int32_t>(),
                 [](int32_t e) { return -e; });
  return y;
}

Tensor check_rows(const char* op, const Tensor& x) {
  check(x.dtype() == DType::f32 && x.ndim() == 3,
        "[{}] float32 of shape (rows, positions, channels) expected, got {} {}", op, name_of(x.dtype()),
        to_string(x.shape()));
  check(x.device().kind == DeviceKind::cpu, "[{}] exact products are computed on the CPU only; use --device cpu", op);
  return x.to_contiguous();
}

void check_against(const char* op, const Tensor& against, int64_t count) {
  check(against.dtype() == DType::i32 && against.shape() == Shape{count},
        "[{}] int32 exponents ({}) expected, got {} {}", op, count, name_of(against.dtype()),
        to_string(against.shape()));
}

// Repeats `scale`, of the channels, for whole positions of at least so many elements that loops over them are long.
std::vector<float> repeated(const std::vector<float>& scale, int64_t positions) {
  const auto channels = static_cast<int64_t>(scale.size());
  const int64_t times = std::clamp<int64_t>(512 / std::max<int64_t>(channels, 1), 1, std::max<int64_t>(positions, 1));
  std::vector<float> all;
  for (int64_t i = 0; i < times; ++i) all.insert(all.end(), scale.begin(), scale.end());
  return all;
}

// One row (positions, channels), or some of its positions.
struct Row {
  const float* x;
  const std::vector<float>& scale;  // repeated()
  int64_t positions, channels;

  int32_t largest() const {
    const int64_t n = positions * channels, step = std::ssize(scale);
    int32_t most = 0;
    for (int64_t i = 0; i < n; i += step)
      most = HWY_DYNAMIC_DISPATCH(largest)(x + i, scale.data(), std::min(step, n - i), most);
    return most;
  }
  void quantize(float times, int16_t* q) const {
    if (channels % 2 == 0) {
      const int64_t n = positions * channels, step = std::ssize(scale);
      for (int64_t i = 0; i < n; i += step)
        HWY_DYNAMIC_DISPATCH(quantize)(x + i, scale.data(), times, std::min(step, n - i), q + i);
      return;
    }
    for (int64_t p = 0; p < positions; ++p, q += channels + 1) {
      HWY_DYNAMIC_DISPATCH(quantize)(x + p * channels, scale.data(), times, channels, q);
      q[channels] = 0;
    }
  }
};

// Rounds rows of x (rows, positions, channels); row r has the scales of group r / rows_per_group. Returns exponents
// plus `base`.
Quantized quantize_with(const Tensor& x, const std::vector<std::vector<float>>& scales, int64_t rows_per_group,
                        int32_t base) {
  const int64_t rows = x.dim(0), positions = x.dim(1), channels = x.dim(2), pairs = (channels + 1) / 2;
  Quantized y{.q = Tensor::empty({rows, positions, pairs}, DType::i32),
              .rows = Tensor::empty({rows}, DType::i32),
              .channels = {}};
  const float* from = x.data<float>();
  auto* const to = static_cast<int16_t*>(y.q.raw());
  int32_t* const exponents = y.rows.data<int32_t>();
  // A row is cut into pieces of positions where there are few rows.
  const int64_t piece = std::max<int64_t>(1, kPiece / std::max<int64_t>(channels, 1)),
                pieces = rows >= 4 * cpu_stream().threads() ? 1 : std::max<int64_t>(1, (positions + piece - 1) / piece),
                length = (positions + pieces - 1) / pieces;
  const auto part = [&](int64_t r, int64_t i) {
    const int64_t first = i * length;
    return Row{from + (r * positions + first) * channels, scales[static_cast<size_t>(r / rows_per_group)],
               std::clamp<int64_t>(positions - first, 0, length), channels};
  };
  const auto quantize_part = [&](int64_t r, int64_t i, int32_t exponent) {
    part(r, i).quantize(integer_scale(exponent), to + (r * positions + i * length) * pairs * 2);
    if (i == 0) exponents[r] = exponent + base;
  };
  if (pieces == 1) {
    cpu_stream().parallel_for(rows, kPiece / (positions * channels + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) quantize_part(r, 0, exponent_of_magnitude(part(r, 0).largest()));
    });
    return y;
  }
  std::vector<std::atomic<int32_t>> most(static_cast<size_t>(rows));
  cpu_stream().parallel_for(rows * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t here = part(i / pieces, i % pieces).largest();
      std::atomic<int32_t>& all = most[static_cast<size_t>(i / pieces)];
      for (int32_t seen = all; seen < here && !all.compare_exchange_weak(seen, here);) {
      }
    }
  });
  cpu_stream().parallel_for(rows * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      quantize_part(i / pieces, i % pieces, exponent_of_magnitude(most[static_cast<size_t>(i / pieces)]));
  });
  return y;
}

// Returns the largest magnitudes of the channels of x (rows, positions, channels), with rows scaled.
std::vector<int32_t> largest_of_channels(const float* x, const float* scale, int64_t rows, int64_t positions,
                                         int64_t channels) {
  const int64_t piece = std::max<int64_t>(1, kPiece / std::max<int64_t>(channels, 1)), all = rows * positions,
                pieces = (all + piece - 1) / piece;
  std::vector<std::atomic<int32_t>> most(static_cast<size_t>(channels));
  cpu_stream().parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> here(static_cast<size_t>(channels), 0);
    for (int64_t i = begin * piece; i < std::min(all, end * piece); ++i)
      HWY_DYNAMIC_DISPATCH(raise)(x + i * channels, scale[i / positions], channels, here.data());
    for (size_t c = 0; c < here.size(); ++c)
      for (int32_t seen = most[c]; seen < here[c] && !most[c].compare_exchange_weak(seen, here[c]);) {
      }
  });
  return {most.begin(), most.end()};
}

Quantized quantize_rows_of(const Tensor& given, const Tensor& against) {
  const Tensor x = check_rows("quantize_rows", given);
  check_against("quantize_rows", against, x.dim(2));
  const Relative relative(against);
  Quantized y = quantize_with(x, {repeated(relative.scale, x.dim(1))}, std::max<int64_t>(x.dim(0), 1), relative.most);
  y.channels = negated(against);
  return y;
}

Quantized quantize_channels_of(const Tensor& given, const Tensor& against) {
  const Tensor x = check_rows("quantize_channels", given);
  check_against("quantize_channels", against, x.dim(0));
  const int64_t rows = x.dim(0), positions = x.dim(1), channels = x.dim(2);
  const Relative relative(against);
  const float *from = x.data<float>(), *scale = relative.scale.data();
  const std::vector<int32_t> most = largest_of_channels(from, scale, rows, positions, channels);
  Quantized y{.q = Tensor::empty({(rows + 1) / 2, positions, channels}, DType::i32),
              .rows = negated(against),
              .channels = Tensor::empty({channels}, DType::i32),
              .pairs = Pairs::rows};
  std::vector<float> times(most.size());
  for (size_t c = 0; c < most.size(); ++c) {
    const int32_t exponent = exponent_of_magnitude(most[c]);
    times[c] = integer_scale(exponent);
    y.channels.data<int32_t>()[c] = exponent + relative.most;
  }
  int32_t* const to = y.q.data<int32_t>();
  cpu_stream().parallel_for((rows + 1) / 2 * positions, kPiece / (channels + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / positions * 2, p = i % positions;
      const float* first = from + (r * positions + p) * channels;
      const bool last = r + 1 == rows;
      HWY_DYNAMIC_DISPATCH(quantize_pairs)
      (first, scale[r], last ? nullptr : first + positions * channels, last ? 0.0f : scale[r + 1], times.data(),
       channels, to + i * channels);
    }
  });
  return y;
}

Quantized quantize_weight_of(const Tensor& given, int64_t groups) {
  const Tensor w = check_rows("quantize_weight", given);
  check(groups > 0 && w.dim(0) % groups == 0, "[quantize_weight] outputs must divide into {} groups, shape is {}",
        groups, to_string(w.shape()));
  const int64_t outputs = w.dim(0) / groups, taps = w.dim(1), channels = w.dim(2);
  Tensor balance = Tensor::zeros({groups * channels}, DType::i32);
  int32_t* const e = balance.data<int32_t>();
  std::vector<int32_t> most;
  const std::vector<float> ones(static_cast<size_t>(outputs), 1.0f);
  for (int64_t g = 0; g < groups; ++g) {
    const auto here =
        largest_of_channels(w.data<float>() + g * outputs * taps * channels, ones.data(), outputs, taps, channels);
    most.insert(most.end(), here.begin(), here.end());
  }
  int32_t top = INT32_MIN;
  const auto counts = [](int32_t m) { return m != 0 && m >> 23 != 255; };
  for (const int32_t m : most)
    if (counts(m)) top = std::max(top, (m >> 23) - 126);
  std::vector<std::vector<float>> scales;
  for (int64_t g = 0; g < groups; ++g) {
    std::vector<float> scale;
    for (int64_t i = g * channels; i < (g + 1) * channels; ++i) {
      const int32_t m = most[static_cast<size_t>(i)];
      if (counts(m)) e[i] = std::clamp((m >> 23) - 126 - top + kBalanceSlack, -kMostBalance, 0);
      scale.push_back(power_of_two(-e[i]));
    }
    scales.push_back(repeated(scale, taps));
  }
  Quantized y = quantize_with(w, scales, std::max<int64_t>(outputs, 1), 0);
  y.channels = balance;
  return y;
}

Quantized pair_rows_of(const Quantized& x) {
  check(x.q.dtype() == DType::i32 && x.q.ndim() == 3 && x.q.dim(0) == x.rows.numel() && x.q.contiguous(),
        "[pair_rows] pairs of channels of shape (rows, positions, pairs) expected, got {}", to_string(x.q.shape()));
  const int64_t rows = x.q.dim(0), positions = x.q.dim(1), pairs = x.q.dim(2),
                channels = std::min(2 * pairs, x.channels.numel());
  Quantized y{.q = Tensor::empty({(rows + 1) / 2, positions, channels}, DType::i32),
              .rows = x.rows,
              .channels = x.channels,
              .pairs = Pairs::rows};
  const auto* const from = static_cast<const int16_t*>(x.q.raw());
  int32_t* const to = y.q.data<int32_t>();
  cpu_stream().parallel_for((rows + 1) / 2 * positions, kPiece / (channels + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / positions * 2, p = i % positions;
      const int16_t* first = from + (r * positions + p) * 2 * pairs;
      HWY_DYNAMIC_DISPATCH(interleave_rows)
      (first, r + 1 < rows ? first + positions * 2 * pairs : nullptr, channels, to + i * channels);
    }
  });
  return y;
}

const Op kQuantizeRows("quantize_rows(x, against)", quantize_rows_of);
const Op kQuantizeChannels("quantize_channels(x, against)", quantize_channels_of);
const Op kQuantizeWeight("quantize_weight(w, groups)", quantize_weight_of);
const Op kPairRows("pair_rows(x)", pair_rows_of);

}  // namespace

Quantized quantize_rows(const Tensor& x, const Tensor& against) { return kQuantizeRows(x, against); }
Quantized quantize_channels(const Tensor& x, const Tensor& against) { return kQuantizeChannels(x, against); }
Quantized quantize_weight(const Tensor& w, int64_t groups) { return kQuantizeWeight(w, groups); }
Quantized pair_rows(const Quantized& x) { return kPairRows(x); }

}  // namespace elinvar
#endif
