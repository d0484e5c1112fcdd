#include "tests/support/bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/ops/copy.h"

namespace elinvar::test {
namespace {

std::string position(const Shape& shape, int64_t element) {
  Shape at = shape;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    at[d] = element % shape[d];
    element /= shape[d];
  }
  return to_string(at);
}

template <class T>
uint64_t pattern(T x) {
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  return bits;
}

template <class T>
double number(T x) {
  if constexpr (std::is_same_v<T, bf16>) return static_cast<double>(static_cast<float>(x));
  else return static_cast<double>(x);
}

}  // namespace

::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b, bool finite_only) {
  if (!a.defined() || !b.defined()) {
    if (a.defined() == b.defined()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "only one of the two tensors is defined";
  }
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape()))
    return ::testing::AssertionFailure() << name_of(a.dtype()) << to_string(a.shape()) << " is compared with "
                                         << name_of(b.dtype()) << to_string(b.shape());
  const Tensor x = a.to_contiguous(), y = b.to_contiguous();
  return visit_dtype(a.dtype(), [&](auto zero) -> ::testing::AssertionResult {
    using T = decltype(zero);
    int64_t first = -1, differing = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const T p = x.data<T>()[i], q = y.data<T>()[i];
      if (pattern(p) == pattern(q) || (std::isnan(number(p)) && std::isnan(number(q)))) continue;
      if (finite_only && !std::isfinite(number(q))) continue;
      if (first < 0) first = i;
      ++differing;
    }
    if (first < 0) return ::testing::AssertionSuccess();
    const T p = x.data<T>()[first], q = y.data<T>()[first];
    return ::testing::AssertionFailure() << fmt::format(
               "{} of {} elements differ, first at {}: {:#0{}x} ({:.9g}) where {:#0{}x} ({:.9g}) is expected",
               differing, x.numel(), position(x.shape(), first), pattern(p), 2 + 2 * sizeof(T), number(p), pattern(q),
               2 + 2 * sizeof(T), number(q));
  });
}

::testing::AssertionResult close_to(const Tensor& a, const Tensor& reference, double tolerance) {
  if (!(a.shape() == reference.shape()))
    return ::testing::AssertionFailure() << "shape " << to_string(a.shape()) << " where "
                                         << to_string(reference.shape()) << " is expected";
  const Tensor x = a.to(DType::f64).to_contiguous(), y = reference.to(DType::f64).to_contiguous();
  double scale = 0.0, worst = -1.0;
  for (double v : y.span<double>())
    if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
  int64_t at = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double p = x.data<double>()[i], q = y.data<double>()[i];
    if (p == q || (std::isnan(p) && std::isnan(q))) continue;
    const double error = std::isfinite(p) && std::isfinite(q) ? std::abs(p - q) : HUGE_VAL;
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  if (worst <= tolerance * scale) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << fmt::format(
             "worst at {}: {:.17g} where {:.17g} is expected; error {:.3g}, allowed {:.3g} times the largest magnitude "
             "{:.3g}",
             position(x.shape(), at), x.data<double>()[at], y.data<double>()[at], worst, tolerance, scale);
}

}  // namespace elinvar::test
