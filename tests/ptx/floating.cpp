// Floating-point arithmetic and comparison: each operation is rounded once, and its NaNs have one form.
#include "tests/ptx/floating.h"

#include <cmath>
#include <limits>

#include "tests/ptx/operation.h"

namespace elinvar::ptx {
namespace {

// A NaN is the other operand's loss; +0 is larger than -0.
template <class T>
T larger(T a, T b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

template <class T>
void add_arithmetic(Operations& all, const std::string& type) {
  all["add.rn." + type] = operation<T, T, T>([](T a, T b) { return canonical(a + b); });
  all["sub.rn." + type] = operation<T, T, T>([](T a, T b) { return canonical(a - b); });
  all["mul.rn." + type] = operation<T, T, T>([](T a, T b) { return canonical(a * b); });
  all["div.rn." + type] = operation<T, T, T>([](T a, T b) { return canonical(a / b); });
  all["fma.rn." + type] = operation<T, T, T, T>([](T a, T b, T c) { return canonical(std::fma(a, b, c)); });
  all["sqrt.rn." + type] = operation<T, T>([](T a) { return canonical(std::sqrt(a)); });
  all["rcp.rn." + type] = operation<T, T>([](T a) { return canonical(T{1} / a); });
  all["neg." + type] = operation<T, T>([](T a) { return -a; });
  all["abs." + type] = operation<T, T>([](T a) { return std::abs(a); });
  all["max." + type] = operation<T, T, T>([](T a, T b) { return larger(a, b); });
  all["min." + type] = operation<T, T, T>([](T a, T b) { return smaller(a, b); });
  all["copysign." + type] = operation<T, T, T>([](T sign, T magnitude) { return std::copysign(magnitude, sign); });
}

// The second six comparisons are true if an operand is NaN.
template <class T>
void add_comparisons(Operations& all, const std::string& type) {
  all["setp.eq." + type] = operation<Predicate, T, T>([](T a, T b) { return a == b; });
  all["setp.ne." + type] = operation<Predicate, T, T>([](T a, T b) { return a < b || a > b; });
  all["setp.lt." + type] = operation<Predicate, T, T>([](T a, T b) { return a < b; });
  all["setp.le." + type] = operation<Predicate, T, T>([](T a, T b) { return a <= b; });
  all["setp.gt." + type] = operation<Predicate, T, T>([](T a, T b) { return a > b; });
  all["setp.ge." + type] = operation<Predicate, T, T>([](T a, T b) { return a >= b; });
  all["setp.equ." + type] = operation<Predicate, T, T>([](T a, T b) { return !(a < b || a > b); });
  all["setp.neu." + type] = operation<Predicate, T, T>([](T a, T b) { return !(a == b); });
  all["setp.ltu." + type] = operation<Predicate, T, T>([](T a, T b) { return !(a >= b); });
  all["setp.leu." + type] = operation<Predicate, T, T>([](T a, T b) { return !(a > b); });
  all["setp.gtu." + type] = operation<Predicate, T, T>([](T a, T b) { return !(a <= b); });
  all["setp.geu." + type] = operation<Predicate, T, T>([](T a, T b) { return !(a < b); });
  all["setp.num." + type] = operation<Predicate, T, T>([](T a, T b) { return a == a && b == b; });
  all["setp.nan." + type] = operation<Predicate, T, T>([](T a, T b) { return a != a || b != b; });
}

}  // namespace

void add_floating_operations(Operations& all) {
  add_arithmetic<float>(all, "f32");
  add_comparisons<float>(all, "f32");
  add_arithmetic<double>(all, "f64");
  add_comparisons<double>(all, "f64");
  // A card approximates these two; here they are rounded correctly but for the last bit.
  all["ex2.approx.ftz.f32"] = operation<float, float>([](float a) {
    const float y = std::exp2(a);
    return y < std::numeric_limits<float>::min() ? 0.0f : canonical(y);
  });
  all["lg2.approx.ftz.f32"] = operation<float, float>([](float a) { return canonical(std::log2(a)); });
}

}  // namespace elinvar::ptx
