#pragma once
// Bodies of the functions of tensor/quantized.h, which has their rules.
#include <cstdint>

#include "tensor/gpu_stream.h"
#include "tensor/quantized.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace elinvar {

// The fields of a Quantized.
struct QuantizedOut {
  Out q, rows, channels;
};

// x (rows, positions, channels), float32.
struct QuantizeArgs {
  In x, against;  // one exponent for each channel; in quantize_channels, for each row
  QuantizedOut to;
  int64_t rows, positions, channels;
  In a = {}, b = {};  // null except for quantize_affine_rows
  bool relu = false;
};
void quantize_rows(CpuStream&, const QuantizeArgs&);
template <class B>
void quantize_rows(GpuStream<B>&, const QuantizeArgs&);
void quantize_channels(CpuStream&, const QuantizeArgs&);
template <class B>
void quantize_channels(GpuStream<B>&, const QuantizeArgs&);

struct QuantizeBothArgs {
  In x, against_channels, against_rows;
  QuantizedOut by_rows, by_channels;
  int64_t rows, positions, channels;
};
void quantize_both(CpuStream&, const QuantizeBothArgs&);
template <class B>
void quantize_both(GpuStream<B>&, const QuantizeBothArgs&);

// w (groups outputs, taps, channels), float32.
struct QuantizeWeightArgs {
  In w;
  QuantizedOut to;
  int64_t groups, outputs, taps, channels;  // outputs and channels of a group
};
void quantize_weight(CpuStream&, const QuantizeWeightArgs&);
template <class B>
void quantize_weight(GpuStream<B>&, const QuantizeWeightArgs&);

// w (groups outputs, taps, channels), with the exponents of its rows and of all channels.
struct PairWeightRowsArgs {
  In w, row_exponents, channel_exponents;
  Out pairs_of_rows;
  int64_t groups, outputs, taps, channels;  // outputs and channels of a group; outputs are even if there are groups
};
void pair_weight_rows(CpuStream&, const PairWeightRowsArgs&);
template <class B>
void pair_weight_rows(GpuStream<B>&, const PairWeightRowsArgs&);

// Pairs of channels (rows, positions, pairs), of which `channels` exist, to pairs of rows.
struct PairRowsArgs {
  In q;
  Out pairs_of_rows;
  int64_t rows, positions, pairs, channels;
};
void pair_rows(CpuStream&, const PairRowsArgs&);
template <class B>
void pair_rows(GpuStream<B>&, const PairRowsArgs&);

// x (rows, positions, channels), with the exponents of its rows and channels.
struct PairAffineRowsArgs {
  In x, a, b, row_exponents, channel_exponents;
  Out pairs_of_rows;
  int64_t rows, positions, channels;
  bool relu;
};
void pair_affine_rows(CpuStream&, const PairAffineRowsArgs&);
template <class B>
void pair_affine_rows(GpuStream<B>&, const PairAffineRowsArgs&);

// Returns the least e, but at least kLeastExponent, with m < 2^e for the magnitude m with these bits.
constexpr int32_t exponent_of(int32_t magnitude) {
  const int32_t e = (magnitude >> 23) - 126;
  return e == 129 ? kNotFinite : e > kLeastExponent ? e : kLeastExponent;
}

// The factor that turns a row with this exponent into integers.
constexpr float integer_scale(int32_t exponent) {
  return exponent == kNotFinite ? 0.0f : power_of_two(kFractionBits - exponent);
}

// The factor 2^(exponent - most) of numbers that are rounded against exponents, of which `most` is the largest.
constexpr float relative_scale(int32_t exponent, int32_t most) {
  return exponent - most < kLeastRelative ? 0.0f : power_of_two(exponent - most);
}

// Whether a channel whose largest magnitude has these bits takes part in the rule for weights, and its exponent there.
constexpr bool is_balanced(int32_t magnitude) { return magnitude != 0 && magnitude >> 23 != 255; }
constexpr int32_t balance_exponent(int32_t magnitude) { return (magnitude >> 23) - 126; }

// The exponent of a weight's channel; `top` is the largest balance_exponent() of those that take part.
constexpr int32_t balance_of(int32_t magnitude, int32_t top) {
  if (!is_balanced(magnitude)) return 0;
  const int32_t e = balance_exponent(magnitude) - top + kBalanceSlack;
  return e > 0 ? 0 : e < -kMostBalance ? -kMostBalance : e;
}

}  // namespace elinvar
