// Pairs of rows for the exact products that add up over rows: from integers that are rounded already, or from the
// values whose exponents are known.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/pair_rows.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <vector>

#include "tensor/ops/affine-inl.h"
#include "tensor/ops/quantize.h"
#include "tensor/ops/quantize_scales.h"
#include "tensor/quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Pairs x[i] scale[i] x_times with y[i] scale[i] y_times; y may be null.
void quantize_affine_pairs(const float* x, float x_times, const float* y, float y_times, const AffineOf& of,
                           const float* scale, int64_t n, int32_t* q) {
  visit_affine(of, [&](auto value) {
    if (!y) {
      for (int64_t i = 0; i < n; ++i) q[i] = pair_of(quantized(value(x[i], i) * scale[i] * x_times), 0);
      return;
    }
    for (int64_t i = 0; i < n; ++i)
      q[i] = pair_of(quantized(value(x[i], i) * scale[i] * x_times), quantized(value(y[i], i) * scale[i] * y_times));
  });
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

HWY_EXPORT(quantize_affine_pairs);
HWY_EXPORT(interleave_rows);

void pair_rows(CpuStream& stream, const PairRowsArgs& a) {
  const int64_t positions = a.positions, pairs = a.pairs, channels = a.channels;
  const auto* const from = a.q.as<int16_t>();
  int32_t* const to = a.pairs_of_rows.as<int32_t>();
  stream.parallel_for(
      (a.rows + 1) / 2 * positions, kQuantizePiece / (channels + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t r = i / positions * 2, p = i % positions;
          const int16_t* first = from + (r * positions + p) * 2 * pairs;
          HWY_DYNAMIC_DISPATCH(interleave_rows)
          (first, r + 1 < a.rows ? first + positions * 2 * pairs : nullptr, channels, to + i * channels);
        }
      });
}

void pair_weight_rows(CpuStream& stream, const PairWeightRowsArgs& a) {
  const int64_t rows = a.groups * a.outputs, row = a.taps * a.channels;
  const auto* from = a.w.as<float>();
  const auto *exponents = a.row_exponents.as<int32_t>(), *of_channels = a.channel_exponents.as<int32_t>();
  int32_t* const to = a.pairs_of_rows.as<int32_t>();
  const std::vector<std::vector<float>> scales = group_scales(of_channels, a.groups, a.channels, a.taps);
  const int64_t step = std::ssize(scales.front()), pieces = step ? (row + step - 1) / step : 0;
  stream.parallel_for((rows + 1) / 2 * pieces, kQuantizePiece / (step + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / pieces * 2, at = i % pieces * step;
      const bool both = r + 1 < rows;
      const float* first = from + r * row + at;
      HWY_DYNAMIC_DISPATCH(quantize_affine_pairs)
      (first, integer_scale(exponents[r]), both ? first + row : nullptr, both ? integer_scale(exponents[r + 1]) : 0.0f,
       AffineOf{}, scales[static_cast<size_t>(r / a.outputs)].data(), std::min(step, row - at), to + r / 2 * row + at);
    }
  });
}

void pair_affine_rows(CpuStream& stream, const PairAffineRowsArgs& a) {
  const int64_t positions = a.positions, channels = a.channels;
  const auto* from = a.x.as<float>();
  const auto *exponents = a.row_exponents.as<int32_t>(), *of_channels = a.channel_exponents.as<int32_t>();
  std::vector<int32_t> against(static_cast<size_t>(channels));
  std::transform(of_channels, of_channels + channels, against.begin(), [](int32_t e) { return -e; });
  const RelativeScales relative(In{against.data(), DType::i32}, channels);
  const std::vector<float> scale = repeated_scales(relative.scale, positions),
                           factors = repeated_scales(a.a, channels, positions),
                           terms = repeated_scales(a.b, channels, positions);
  const AffineOf of{a.a.data ? factors.data() : nullptr, terms.data(), a.relu};
  int32_t* const to = a.pairs_of_rows.as<int32_t>();
  const int64_t step = std::ssize(scale), row = positions * channels, pieces = step ? (row + step - 1) / step : 0;
  stream.parallel_for((a.rows + 1) / 2 * pieces, kQuantizePiece / (step + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / pieces * 2, at = i % pieces * step;
      const bool both = r + 1 < a.rows;
      const float* first = from + r * row + at;
      HWY_DYNAMIC_DISPATCH(quantize_affine_pairs)
      (first, integer_scale(exponents[r] - relative.most), both ? first + row : nullptr,
       both ? integer_scale(exponents[r + 1] - relative.most) : 0.0f, of, scale.data(), std::min(step, row - at),
       to + r / 2 * row + at);
    }
  });
}

}  // namespace elinvar
#endif
