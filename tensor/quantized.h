#pragma once
// Factors of exact products (NUMERICS.md, "Exact numerics"): float32 tensors rounded to integers of 14 bits, with
// powers of two as scales, whose products are summed as integers. A sum of integers does not depend on its order, so an
// exact product has the same bits on every machine, however it is computed.
//
// A tensor is seen as (R, P, C): rows of P positions with C channels each. The rows of a linear layer are its samples,
// with one position; those of a convolution are images; those of a weight are the outputs, and its positions the taps.
//
//   x[r, p, c] = q[r, p, c] 2^(rows[r] + channels[c] - 13), rounded; |q| <= 8191
//
// A product sums over the channels of both factors, or over their rows. Along what it sums, the exponents of the one
// factor and those of the other must add up to a constant, so a factor is rounded *against* the other: channels (or
// rows) of x are multiplied by 2^(against - its maximum) first. Exponents of a result are those that remain.
//
//   y  (r, o) sums over c:   quantize_rows(x, w.channels), w
//   dx (r, c) sums over o:   quantize_rows(dy, w.rows), pair_rows(w)
//   dw (o, c) sums over r:   quantize_channels(dy, x.rows), pair_rows(x)
//
// So x is rounded once for all products, and is kept for the backward pass in two bytes an element, or not at all where
// it can be computed again (autograd/exact_factor.h).
#include <bit>
#include <cstdint>

#include "tensor/fields.h"
#include "tensor/tensor.h"

namespace elinvar {

inline constexpr int32_t kFractionBits = 13;
inline constexpr int32_t kMostQuantized = (1 << kFractionBits) - 1;
inline constexpr int32_t kLeastExponent = -112;  // of a row; smaller magnitudes are rounded as if it had this one
inline constexpr int32_t kNotFinite = 1 << 20;   // exponent of a row with an infinity or a NaN: its results are NaN
inline constexpr int32_t kLeastRelative = -100;  // terms that are smaller by more than 2^-100 are left out
inline constexpr int64_t kMostTerms = int64_t{1} << 27;  // of a sum, which is then below 2^53
// Numbers that are split into an upper byte with a sign and a lower one without: so many products of pairs of bytes, of
// which those of lower bytes are the largest, stay in int32.
inline constexpr int64_t kMostBytePairs = (1 << 14) - 16;
static_assert(2 * kMostBytePairs * 255 * 255 <= INT32_MAX);
inline constexpr int32_t kMostBalance = 8, kBalanceSlack = 2;  // see quantize_weight

// 2^e as float32, for e in [-126, 127].
constexpr float power_of_two(int32_t e) { return std::bit_cast<float>((e + 127) << 23); }

// The dimension over which a product sums. Two adjacent numbers along it are a pair.
enum class Pairs : uint8_t { channels, rows };
constexpr Pairs last_of(Pairs) { return Pairs::rows; }  // trace.h

struct Quantized {
  Tensor q;         // int32, each a pair of int16: (R, P, (C + 1) / 2) of channels, or ((R + 1) / 2, P, C) of rows
  Tensor rows;      // int32 (R)
  Tensor channels;  // int32 (C)
  Pairs pairs = Pairs::channels;
  ELINVAR_FIELDS(q, rows, channels, pairs)
};

// Rounds each row of x (R, P, C), float32, for sums over channels. `against` (C) has the exponents of the other
// factor's channels. Pairs are of channels; the last is filled with 0 if C is odd.
Quantized quantize_rows(const Tensor& x, const Tensor& against);

// quantize_rows(fma(x, a, b), against) with a and b (C) of each channel, or of relu() of that, which is not written to
// memory.
Quantized quantize_affine_rows(const Tensor& x, const Tensor& a, const Tensor& b, bool relu, const Tensor& against);

// pair_rows() of the result of quantize_affine_rows that had these exponents, from the same x, a and b, in one pass; of
// quantize_rows if a and b are undefined.
Quantized pair_affine_rows(const Tensor& x, const Tensor& a, const Tensor& b, bool relu, const Tensor& rows,
                           const Tensor& channels);

// Rounds each channel of x (R, P, C) for sums over rows and positions; `against` (R). Pairs are of rows.
Quantized quantize_channels(const Tensor& x, const Tensor& against);

// quantize_rows(x, against_channels) and quantize_channels(x, against_rows), which CPUs compute in one pass over x.
struct QuantizedBoth {
  Quantized rows, channels;
  ELINVAR_FIELDS(rows, channels)
};
QuantizedBoth quantize_both(const Tensor& x, const Tensor& against_channels, const Tensor& against_rows);

// Rounds a weight w (O, P, C / groups). Row o belongs to group o / (O / groups), and `channels` is of all C. Channels
// in which weights are small, compared with other channels, are multiplied by a power of two and the factor's channels
// divided by it: those that are smaller by more than 2^kBalanceSlack, and at most by 2^kMostBalance. So a channel of
// large values does not cost others their precision where weights compensate it.
Quantized quantize_weight(const Tensor& w, int64_t groups = 1);

// pair_rows() of the result of quantize_weight that had these exponents, from the same w, in one pass.
Quantized pair_weight_rows(const Tensor& w, int64_t groups, const Tensor& rows, const Tensor& channels);

// The same numbers as pairs of rows, from pairs of `channels` channels.
Quantized pair_rows(const Quantized& x);

}  // namespace elinvar
