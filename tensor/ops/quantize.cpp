#include "tensor/ops/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/quantize.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "tensor/ops/affine-inl.h"
#include "tensor/ops/quantize_scales.h"
#include "tensor/quantize-inl.h"

#ifndef ELINVAR_TENSOR_OPS_QUANTIZE_ONCE_
#define ELINVAR_TENSOR_OPS_QUANTIZE_ONCE_
namespace elinvar {

// Lines of one row, (lines, channels), and of the next, which may be null, with the numbers that they are multiplied by
// and where they go to.
struct LinesOfBoth {
  const float *x, *y;
  int64_t lines, channels;
  const float *scale, *times;  // of each channel, for rows and for channels
  float x_times, y_times;      // factors that turn the two rows into integers when rows are rounded
  float x_scale, y_scale;      // scales of the two rows when channels are rounded
  int16_t *x_row, *y_row;
  int32_t* pairs;
};

}  // namespace elinvar
#endif

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Returns the largest magnitude of x[i] scale[i], i < n.
int32_t largest(const float* x, const AffineOf& of, const float* scale, int64_t n, int32_t most) {
  return visit_affine(of, [&](auto value) {
    int32_t all = most;
    for (int64_t i = 0; i < n; ++i) all = std::max(all, magnitude(value(x[i], i) * scale[i]));
    return all;
  });
}

// most[i] = max(most[i], x[i] scale)
void raise(const float* x, float scale, int64_t n, int32_t* most) {
  for (int64_t i = 0; i < n; ++i) most[i] = std::max(most[i], magnitude(x[i] * scale));
}

// q[i] = x[i] scale[i] times
void quantize(const float* x, const AffineOf& of, const float* scale, float times, int64_t n, int16_t* q) {
  visit_affine(of, [&](auto value) {
    for (int64_t i = 0; i < n; ++i) q[i] = static_cast<int16_t>(quantized(value(x[i], i) * scale[i] * times));
  });
}

// Returns the largest magnitude of lines whose channels are multiplied by `scale`, and raises `most` of the channels to
// that of lines multiplied by `row_scale`.
int32_t largest_of_both(const float* x, int64_t lines, int64_t channels, const float* scale, float row_scale,
                        int32_t* most) {
  int32_t all = 0;
  for (int64_t line = 0; line < lines; ++line, x += channels)
    for (int64_t c = 0; c < channels; ++c) {
      all = std::max(all, magnitude(x[c] * scale[c]));
      most[c] = std::max(most[c], magnitude(x[c] * row_scale));
    }
  return all;
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

void quantize_lines_of_both(const LinesOfBoth& to) {
  const int64_t n = to.channels, width = (n + 1) / 2 * 2;
  const float *x = to.x, *y = to.y, *scale = to.scale, *times = to.times;
  const float x_times = to.x_times, y_times = to.y_times, x_scale = to.x_scale, y_scale = to.y_scale;
  int16_t* __restrict x_row = to.x_row;
  int16_t* __restrict y_row = to.y_row;
  int32_t* __restrict pairs = to.pairs;
  for (int64_t line = 0; line < to.lines; ++line) {
    if (y) {
      for (int64_t i = 0; i < n; ++i) {
        x_row[i] = static_cast<int16_t>(quantized(x[i] * scale[i] * x_times));
        y_row[i] = static_cast<int16_t>(quantized(y[i] * scale[i] * y_times));
        pairs[i] = pair_of(quantized(x[i] * x_scale * times[i]), quantized(y[i] * y_scale * times[i]));
      }
      if (width > n) x_row[n] = y_row[n] = 0;
      y += n, y_row += width;
    } else {
      for (int64_t i = 0; i < n; ++i) {
        x_row[i] = static_cast<int16_t>(quantized(x[i] * scale[i] * x_times));
        pairs[i] = pair_of(quantized(x[i] * x_scale * times[i]), 0);
      }
      if (width > n) x_row[n] = 0;
    }
    x += n, x_row += width, pairs += n;
  }
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(largest);
HWY_EXPORT(raise);
HWY_EXPORT(quantize);
HWY_EXPORT(quantize_pairs);
HWY_EXPORT(largest_of_both);
HWY_EXPORT(quantize_lines_of_both);

namespace {

void negate(const In& exponents, int64_t count, const Out& to) {
  const auto* e = exponents.as<int32_t>();
  std::transform(e, e + count, to.as<int32_t>(), [](int32_t x) { return -x; });
}

// most = max(most, here)
void raise_to(std::atomic<int32_t>& most, int32_t here) {
  for (int32_t seen = most; seen < here && !most.compare_exchange_weak(seen, here);) {
  }
}

// One row (positions, channels), or some of its positions.
struct Row {
  const float* x;
  const AffineOf& of;               // repeated_scales(), like `scale`
  const std::vector<float>& scale;  // repeated_scales()
  int64_t positions, channels;

  int32_t largest() const {
    const int64_t n = positions * channels, step = std::ssize(scale);
    int32_t most = 0;
    for (int64_t i = 0; i < n; i += step)
      most = HWY_DYNAMIC_DISPATCH(largest)(x + i, of, scale.data(), std::min(step, n - i), most);
    return most;
  }
  void quantize(float times, int16_t* q) const {
    if (channels % 2 == 0) {
      const int64_t n = positions * channels, step = std::ssize(scale);
      for (int64_t i = 0; i < n; i += step)
        HWY_DYNAMIC_DISPATCH(quantize)(x + i, of, scale.data(), times, std::min(step, n - i), q + i);
      return;
    }
    for (int64_t p = 0; p < positions; ++p, q += channels + 1) {
      HWY_DYNAMIC_DISPATCH(quantize)(x + p * channels, of, scale.data(), times, channels, q);
      q[channels] = 0;
    }
  }
};

// Rounds rows of x (rows, positions, channels); row r has the scales of group r / rows_per_group. Writes exponents plus
// `base`.
void quantize_with(CpuStream& stream, const QuantizeArgs& a, const std::vector<std::vector<float>>& scales,
                   int64_t rows_per_group, int32_t base) {
  const int64_t rows = a.rows, positions = a.positions, channels = a.channels, pairs = (channels + 1) / 2;
  const auto* from = a.x.as<float>();
  auto* const to = a.to.q.as<int16_t>();
  auto* const exponents = a.to.rows.as<int32_t>();
  // A row is cut into pieces of positions where there are few rows.
  const int64_t piece = std::max<int64_t>(1, kQuantizePiece / std::max<int64_t>(channels, 1)),
                pieces = rows >= 4 * stream.threads() ? 1 : std::max<int64_t>(1, (positions + piece - 1) / piece),
                length = (positions + pieces - 1) / pieces;
  const std::vector<float> factors = repeated_scales(a.a, channels, positions),
                           terms = repeated_scales(a.b, channels, positions);
  const AffineOf of{a.a.data ? factors.data() : nullptr, terms.data(), a.relu};
  const auto part = [&](int64_t r, int64_t i) {
    const int64_t first = i * length;
    return Row{from + (r * positions + first) * channels, of, scales[static_cast<size_t>(r / rows_per_group)],
               std::clamp<int64_t>(positions - first, 0, length), channels};
  };
  const auto quantize_part = [&](int64_t r, int64_t i, int32_t exponent) {
    part(r, i).quantize(integer_scale(exponent), to + (r * positions + i * length) * pairs * 2);
    if (i == 0) exponents[r] = exponent + base;
  };
  if (pieces == 1) {
    stream.parallel_for(rows, kQuantizePiece / (positions * channels + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) quantize_part(r, 0, exponent_of(part(r, 0).largest()));
    });
    return;
  }
  std::vector<std::atomic<int32_t>> most(static_cast<size_t>(rows));
  stream.parallel_for(rows * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t here = part(i / pieces, i % pieces).largest();
      raise_to(most[static_cast<size_t>(i / pieces)], here);
    }
  });
  stream.parallel_for(rows * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      quantize_part(i / pieces, i % pieces, exponent_of(most[static_cast<size_t>(i / pieces)]));
  });
}

// Returns the largest magnitudes of the channels of x (rows, positions, channels), with rows scaled.
std::vector<int32_t> largest_of_channels(CpuStream& stream, const float* x, const float* scale, int64_t rows,
                                         int64_t positions, int64_t channels) {
  const int64_t piece = std::max<int64_t>(1, kQuantizePiece / std::max<int64_t>(channels, 1)), all = rows * positions,
                pieces = (all + piece - 1) / piece;
  std::vector<std::atomic<int32_t>> most(static_cast<size_t>(channels));
  stream.parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> here(static_cast<size_t>(channels), 0);
    for (int64_t i = begin * piece; i < std::min(all, end * piece); ++i)
      HWY_DYNAMIC_DISPATCH(raise)(x + i * channels, scale[i / positions], channels, here.data());
    for (size_t c = 0; c < here.size(); ++c) raise_to(most[c], here[c]);
  });
  return {most.begin(), most.end()};
}

}  // namespace

void quantize_rows(CpuStream& stream, const QuantizeArgs& a) {
  const RelativeScales relative(a.against, a.channels);
  quantize_with(stream, a, {repeated_scales(relative.scale, a.positions)}, std::max<int64_t>(a.rows, 1), relative.most);
  negate(a.against, a.channels, a.to.channels);
}

void quantize_channels(CpuStream& stream, const QuantizeArgs& a) {
  const int64_t rows = a.rows, positions = a.positions, channels = a.channels;
  const RelativeScales relative(a.against, rows);
  const float *from = a.x.as<float>(), *scale = relative.scale.data();
  const std::vector<int32_t> most = largest_of_channels(stream, from, scale, rows, positions, channels);
  negate(a.against, rows, a.to.rows);
  std::vector<float> times(most.size());
  for (size_t c = 0; c < most.size(); ++c) {
    const int32_t exponent = exponent_of(most[c]);
    times[c] = integer_scale(exponent);
    a.to.channels.as<int32_t>()[c] = exponent + relative.most;
  }
  auto* const to = a.to.q.as<int32_t>();
  stream.parallel_for((rows + 1) / 2 * positions, kQuantizePiece / (channels + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / positions * 2, p = i % positions;
      const float* first = from + (r * positions + p) * channels;
      const bool last = r + 1 == rows;
      HWY_DYNAMIC_DISPATCH(quantize_pairs)
      (first, scale[r], last ? nullptr : first + positions * channels, last ? 0.0f : scale[r + 1], times.data(),
       channels, to + i * channels);
    }
  });
}

void quantize_both(CpuStream& stream, const QuantizeBothArgs& a) {
  const int64_t rows = a.rows, positions = a.positions, channels = a.channels, width = (channels + 1) / 2 * 2;
  const RelativeScales of_channels(a.against_channels, channels), of_rows(a.against_rows, rows);
  const auto* from = a.x.as<float>();
  // Pieces of the positions of a row, or of two.
  const int64_t length = std::clamp<int64_t>(kQuantizePiece / std::max<int64_t>(channels, 1), 1,
                                             std::max<int64_t>(positions, 1)),
                pieces = (positions + length - 1) / length;
  std::vector<std::atomic<int32_t>> most_of_rows(static_cast<size_t>(rows)),
      most_of_channels(static_cast<size_t>(channels));
  stream.parallel_for(rows * pieces, kQuantizePiece / (length * channels + 1) + 1, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> here(static_cast<size_t>(channels), 0);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / pieces, p = i % pieces * length;
      const int32_t most = HWY_DYNAMIC_DISPATCH(largest_of_both)(
          from + (r * positions + p) * channels, std::min(length, positions - p), channels, of_channels.scale.data(),
          of_rows.scale[static_cast<size_t>(r)], here.data());
      raise_to(most_of_rows[static_cast<size_t>(r)], most);
    }
    for (size_t c = 0; c < here.size(); ++c) raise_to(most_of_channels[c], here[c]);
  });
  negate(a.against_channels, channels, a.by_rows.channels);
  negate(a.against_rows, rows, a.by_channels.rows);
  std::vector<float> row_times, times;
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t exponent = exponent_of(most_of_rows[static_cast<size_t>(r)]);
    row_times.push_back(integer_scale(exponent));
    a.by_rows.rows.as<int32_t>()[r] = exponent + of_channels.most;
  }
  for (int64_t c = 0; c < channels; ++c) {
    const int32_t exponent = exponent_of(most_of_channels[static_cast<size_t>(c)]);
    times.push_back(integer_scale(exponent));
    a.by_channels.channels.as<int32_t>()[c] = exponent + of_rows.most;
  }
  auto* const to_rows = a.by_rows.q.as<int16_t>();
  auto* const to_pairs = a.by_channels.q.as<int32_t>();
  stream.parallel_for((rows + 1) / 2 * pieces, kQuantizePiece / (length * channels + 1) + 1,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t r = i / pieces * 2, p = i % pieces * length, line = r * positions + p;
                          const auto first = static_cast<size_t>(r);
                          const bool both = r + 1 < rows;
                          HWY_DYNAMIC_DISPATCH(quantize_lines_of_both)
                          ({.x = from + line * channels,
                            .y = both ? from + (line + positions) * channels : nullptr,
                            .lines = std::min(length, positions - p),
                            .channels = channels,
                            .scale = of_channels.scale.data(),
                            .times = times.data(),
                            .x_times = row_times[first],
                            .y_times = both ? row_times[first + 1] : 0.0f,
                            .x_scale = of_rows.scale[first],
                            .y_scale = both ? of_rows.scale[first + 1] : 0.0f,
                            .x_row = to_rows + line * width,
                            .y_row = both ? to_rows + (line + positions) * width : nullptr,
                            .pairs = to_pairs + (r / 2 * positions + p) * channels});
                        }
                      });
}

void quantize_weight(CpuStream& stream, const QuantizeWeightArgs& a) {
  const int64_t groups = a.groups, outputs = a.outputs, taps = a.taps, channels = a.channels;
  std::vector<int32_t> most;
  const std::vector<float> ones(static_cast<size_t>(outputs), 1.0f);
  for (int64_t g = 0; g < groups; ++g) {
    const auto here = largest_of_channels(stream, a.w.as<float>() + g * outputs * taps * channels, ones.data(), outputs,
                                          taps, channels);
    most.insert(most.end(), here.begin(), here.end());
  }
  int32_t top = INT32_MIN;
  for (const int32_t m : most)
    if (is_balanced(m)) top = std::max(top, balance_exponent(m));
  auto* const e = a.to.channels.as<int32_t>();
  std::transform(most.begin(), most.end(), e, [top](int32_t m) { return balance_of(m, top); });
  quantize_with(stream, QuantizeArgs{a.w, {}, a.to, groups * outputs, taps, channels},
                group_scales(e, groups, channels, taps), std::max<int64_t>(outputs, 1), 0);
}

}  // namespace elinvar
#endif
