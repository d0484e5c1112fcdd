#include "tensor/ops/rotary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/rotary.cpp"
#include <hwy/foreach_target.h>

#include "tensor/isa.h"
#include "tensor/graph.h"
#include "tensor/op_check.h"
#include "tensor/trace.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Positions [begin, end) counted over the batch.
void rotary_positions(const RotaryArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const int64_t n = a.half;
    for (int64_t p = begin; p < end; ++p) {
      const T* cos = a.cos.as<T>() + p % a.time * n;
      const T* sin = a.sin.as<T>() + p % a.time * n;
      for (int64_t h = 0; h < a.heads; ++h) {
        const T* x = a.x.as<T>() + (p * a.heads + h) * 2 * n;
        T* y = a.y.as<T>() + (p * a.heads + h) * 2 * n;
        for (int64_t i = 0; i < n; i += V::kLanes) {
          const V x1 = V::load(x + i, n - i), x2 = V::load(x + n + i, n - i);
          const V c = V::load(cos + i, n - i);
          const V s = a.inverse ? neg(V::load(sin + i, n - i)) : V::load(sin + i, n - i);
          (x1 * c - x2 * s).store(y + i, n - i);
          (x2 * c + x1 * s).store(y + n + i, n - i);
        }
      }
    }
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

namespace elinvar {

HWY_EXPORT(rotary_positions);

void rotary(CpuStream& stream, const RotaryArgs& a) {
  stream.parallel_for(a.batch * a.time, 8192 / (2 * a.half * a.heads + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(rotary_positions, a.x.dtype)(a, b, e);
  });
}

namespace {

struct Turn {
  double cos, sin;
};

// The steps of Note [Angles] from k on.
Turn turn_of(double a) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1, kHalfPi = 0x1.921fb54442d18p+0,
                   kHalfPiLow = 0x1.1a62633145c07p-54;
  const double k = std::nearbyint(a * kTwoOverPi);
  const double u = std::fma(-k, kHalfPiLow, std::fma(-k, kHalfPi, a)), u2 = u * u;
  // 1/n! with the signs of the series, from the highest power down.
  constexpr double kSin[] = {-1.0 / 121645100408832000.0,
                             1.0 / 355687428096000.0,
                             -1.0 / 1307674368000.0,
                             1.0 / 6227020800.0,
                             -1.0 / 39916800.0,
                             1.0 / 362880.0,
                             -1.0 / 5040.0,
                             1.0 / 120.0,
                             -1.0 / 6.0};
  constexpr double kCos[] = {1.0 / 2432902008176640000.0,
                             -1.0 / 6402373705728000.0,
                             1.0 / 20922789888000.0,
                             -1.0 / 87178291200.0,
                             1.0 / 479001600.0,
                             -1.0 / 3628800.0,
                             1.0 / 40320.0,
                             -1.0 / 720.0,
                             1.0 / 24.0,
                             -1.0 / 2.0};
  double s = 0.0, c = 0.0;
  for (double factor : kSin) s = std::fma(s, u2, factor);
  for (double factor : kCos) c = std::fma(c, u2, factor);
  s = std::fma(u * u2, s, u);
  c = std::fma(u2, c, 1.0);
  switch (static_cast<int64_t>(k) & 3) {
    case 0:
      return {c, s};
    case 1:
      return {-s, c};
    case 2:
      return {-c, -s};
    default:
      return {s, -c};
  }
}

double power(double q, int64_t n) {
  double p = 1.0;
  for (int64_t i = 0; i < n; ++i) p *= q;
  return p;
}

// Returns the largest float64 in [1, base] with power(q, half) <= base.
double root_of(double base, int64_t half) {
  double low = 1.0, high = base;
  if (power(high, half) <= base) return high;
  for (;;) {
    const double middle = low + (high - low) * 0.5;
    if (middle == low || middle == high) return low;
    (power(middle, half) <= base ? low : high) = middle;
  }
}

// Returns f of Note [Angles].
std::vector<double> turns_of_pairs(int64_t half, const RotaryFrequencies& of) {
  constexpr double kOneOverTwoPi = 0x1.45f306dc9c883p-3;
  std::vector<double> f;
  const double q = root_of(of.base, half), context = static_cast<double>(of.context);
  double p = 1.0;
  for (int64_t i = 0; i < half; ++i, p *= q) f.push_back(1.0 / p);
  if (of.factor == 1.0) return f;
  for (double& turn : f) {
    const double s = std::clamp((context * turn * kOneOverTwoPi - of.low) / (of.high - of.low), 0.0, 1.0);
    turn = (1.0 - s) * (turn / of.factor) + s * turn;
  }
  return f;
}

void check_frequencies(const RotaryFrequencies& f) {
  check(f.base >= 1.0 && std::isfinite(f.base), "[rotary] the base must be a number of at least 1, got {}", f.base);
  check(f.factor >= 1.0 && std::isfinite(f.factor), "[rotary] the factor must be a number of at least 1, got {}",
        f.factor);
  check(f.low > 0.0 && f.low < f.high && std::isfinite(f.high),
        "[rotary] expected turns 0 < low < high in the first context, got {} and {}", f.low, f.high);
  check(f.context >= 1, "[rotary] the first context must have at least 1 position, got {}", f.context);
}

RotaryAngles angles_of(int64_t time, int64_t half, const RotaryFrequencies& frequencies, int64_t first, DType dtype) {
  check_frequencies(frequencies);
  constexpr int64_t kPositions = int64_t{1} << 31;
  check(first >= 0 && time <= kPositions && first <= kPositions - time,
        "[rotary] {} positions from {} on are not inside [0, 2^31)", time, first);
  struct Key {
    int64_t time, half, first;
    RotaryFrequencies frequencies;
    DType dtype;
    bool operator==(const Key&) const = default;
  };
  static std::mutex mutex;
  static Key last_key{};
  static RotaryAngles last;
  const Key key{time, half, first, frequencies, dtype};
  std::lock_guard lock(mutex);
  if (last.cos.defined() && last_key == key) return last;

  const std::vector<double> f = turns_of_pairs(half, frequencies);
  RotaryAngles angles{Tensor::empty({time, half}, dtype), Tensor::empty({time, half}, dtype)};
  visit_float(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* cos = angles.cos.data<T>();
    T* sin = angles.sin.data<T>();
    cpu_stream().parallel_for(time, 2048 / (half + 1) + 1, [&](int64_t b, int64_t e) {
      for (int64_t t = b; t < e; ++t) {
        for (int64_t i = 0; i < half; ++i) {
          const Turn turn = turn_of(static_cast<double>(first + t) * f[static_cast<size_t>(i)]);
          cos[t * half + i] = static_cast<T>(turn.cos);
          sin[t * half + i] = static_cast<T>(turn.sin);
        }
      }
    });
  });
  last_key = key;
  last = angles;
  return angles;
}

Tensor rotary_of(const Tensor& input, const RotaryAngles& angles, bool inverse) {
  check_activation("rotary", input);
  check(input.ndim() == 4 && input.dim(3) % 2 == 0, "[rotary] (B, T, H, D) with an even D expected, shape is {}",
        to_string(input.shape()));
  const Tensor x = input.to_contiguous();
  const Shape table{x.dim(1), x.dim(3) / 2};
  const Tensor cos = operand("rotary", "the cosines", angles.cos, table, x),
               sin = operand("rotary", "the sines", angles.sin, table, x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    rotary(stream, RotaryArgs{in(x), in(cos), in(sin), out(y), x.dim(0), x.dim(1), x.dim(2), x.dim(3) / 2, inverse});
  });
  return y;
}

// Caches the last table that was sent to a device, with its source. Never destroyed: its memory belongs to a stream,
// which may be destroyed first.
RotaryAngles on_device(const RotaryAngles& angles, Device device) {
  if (const Tensor cos = graph_constant(angles.cos, device); cos.defined())
    return {cos, graph_constant(angles.sin, device)};
  struct Sent {
    std::mutex mutex;
    RotaryAngles from, to;
  };
  static Sent& last = *new Sent;
  const std::lock_guard lock(last.mutex);
  if (!last.from.cos.shares_storage(angles.cos) || last.to.cos.device() != device) {
    last.to = {angles.cos.to(device), angles.sin.to(device)};
    last.from = angles;
  }
  return last.to;
}

const Op kAngles("rotary_angles(time, half, frequencies, first, dtype)", angles_of);
const Op kRotary("rotary(x, angles, inverse) -> y", rotary_of);

}  // namespace

RotaryAngles rotary_angles(int64_t time, int64_t half, const RotaryFrequencies& frequencies, int64_t first, DType dtype,
                           Device device) {
  const RotaryAngles angles = kAngles(time, half, frequencies, first, dtype);
  return device == Device{} ? angles : on_device(angles, device);
}

Tensor rotary(const Tensor& x, const RotaryAngles& angles, bool inverse) { return kRotary(x, angles, inverse); }

}  // namespace elinvar
#endif
