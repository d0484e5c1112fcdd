#pragma once
// Rotary position embedding (Su et al., RoFormer, 2021) with the pairs of LLaMA: for x (B, T, H, D), D even, the pair
// (i, i + D/2) at position t is rotated by the angle a = (first + t) * base^(-2i/D):
//   y1 = x1 * cos(a) - x2 * sin(a)    y2 = x2 * cos(a) + x1 * sin(a)      each sign one rounding
// The gradient is the rotation by -a.
//
// Note [Angles]. Cosines and sines are computed on the host in float64 with + - * / fma and rint only, so they are the
// same everywhere; they are rounded once to the element type, and devices receive them as bits.
//   q        the largest float64 in [1, base] whose power q^(D/2), by repeated multiplication, is at most base
//   f[i]     1 / q^i, the power by repeated multiplication; with a factor other than 1, as LLaMA 3.1 has it, f of
//              r = context * f[i] * (1 / 2pi)                            turns of the pair in the first context
//              s = (r - low) / (high - low), at least 0 and at most 1
//              f = (1 - s) * (f[i] / factor) + s * f[i]                  each sign one rounding
//   a        (first + t) * f[i]
//   k        rint(a * 2/pi);  u = fma(-k, pi/2, a);  u = fma(-k, lo, u)   with pi/2 + lo the constant to 106 bits
//   sin, cos of u, |u| <= pi/4 and a little, by their Taylor polynomials to u^19 and u^20, Horner by fma;
//            k mod 4 says which of them, with which sign, are those of a
// The error is below 1e-15 plus that of a, a few ulp.
#include "tensor/fields.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

struct RotaryArgs {
  In x;
  In cos, sin;  // (T, D/2), of x's type
  Out y;
  int64_t batch, time, heads, half;  // half = D/2
  bool inverse;
};
void rotary(CpuStream&, const RotaryArgs&);
template <class B>
void rotary(GpuStream<B>&, const RotaryArgs&);

// The rotation of a pair from one position to the next. LLaMA 3.1 and later extend the context by rotating slow pairs
// `factor` times slower (rope_scaling of type "llama3" in Hugging Face's config.json): fully for pairs of less than
// `low` turns in `context` positions, not at all for those of more than `high`, and partly in between.
struct RotaryFrequencies {
  double base = 10000.0;
  double factor = 1.0;           // 1 changes nothing
  double low = 1.0, high = 4.0;  // low_freq_factor, high_freq_factor
  int64_t context = 8192;        // original_max_position_embeddings
  ELINVAR_FIELDS(base, factor, low, high, context)
  bool operator==(const RotaryFrequencies&) const = default;
};

struct RotaryAngles {
  Tensor cos, sin;  // (T, D/2)
  ELINVAR_FIELDS(cos, sin)
};
// Caches the last table, also on another device, because all layers of a network use the same one. Thread-safe.
RotaryAngles rotary_angles(int64_t time, int64_t half, const RotaryFrequencies& frequencies, int64_t first, DType dtype,
                           Device device = {});

// x (B, T, H, D) float32 or float64, angles on its device
Tensor rotary(const Tensor& x, const RotaryAngles& angles, bool inverse);

}  // namespace elinvar
