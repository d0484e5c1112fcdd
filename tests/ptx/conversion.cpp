// Conversion between types of numbers.
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/ptx/floating.h"
#include "tests/ptx/operation.h"

namespace elinvar::ptx {
namespace {

// Truncates; values beyond the range become its ends. NaN becomes zero, or the lowest signed or middle unsigned number
// if one of the types has 64 bits.
template <class From, class To>
To to_integer(From x) {
  if (x != x) return sizeof(From) == 4 && sizeof(To) < 8 ? To{0} : static_cast<To>(uint64_t{1} << (8 * sizeof(To) - 1));
  const double least = static_cast<double>(std::numeric_limits<To>::min());
  const double beyond = std::ldexp(1.0, static_cast<int>(8 * sizeof(To)) - (std::is_signed_v<To> ? 1 : 0));
  const double whole = std::trunc(static_cast<double>(x));
  if (whole < least) return std::numeric_limits<To>::min();
  if (whole >= beyond) return std::numeric_limits<To>::max();
  return static_cast<To>(whole);
}

template <class To, class From>
void add_integers(Operations& all, const std::string& types) {
  all["cvt." + types] = operation<To, From>([](From x) { return static_cast<To>(x); });
  all["cvt." + types + kFromWide] =
      operation<To, uint64_t>([](uint64_t x) { return static_cast<To>(static_cast<From>(x)); });
}

template <class From>
void add_from_integer(Operations& all, const std::string& type) {
  all["cvt.rn.f32." + type] = operation<float, From>([](From x) { return static_cast<float>(x); });
  all["cvt.rn.f64." + type] = operation<double, From>([](From x) { return static_cast<double>(x); });
  add_integers<uint16_t, From>(all, "u16." + type);
  add_integers<int16_t, From>(all, "s16." + type);
  add_integers<uint32_t, From>(all, "u32." + type);
  add_integers<int32_t, From>(all, "s32." + type);
  add_integers<uint64_t, From>(all, "u64." + type);
  add_integers<int64_t, From>(all, "s64." + type);
}

template <class To>
void add_to_integer(Operations& all, const std::string& type) {
  all["cvt.rzi." + type + ".f32"] = partial_operation<To, float>([](float x) { return to_integer<float, To>(x); });
  all["cvt.rzi." + type + ".f64"] = partial_operation<To, double>([](double x) { return to_integer<double, To>(x); });
}

}  // namespace

void add_conversions(Operations& all) {
  add_from_integer<uint16_t>(all, "u16");
  add_from_integer<int16_t>(all, "s16");
  add_from_integer<uint32_t>(all, "u32");
  add_from_integer<int32_t>(all, "s32");
  add_from_integer<uint64_t>(all, "u64");
  add_from_integer<int64_t>(all, "s64");
  add_to_integer<uint32_t>(all, "u32");
  add_to_integer<int32_t>(all, "s32");
  add_to_integer<uint64_t>(all, "u64");
  add_to_integer<int64_t>(all, "s64");
  all["cvt.f64.f32"] = operation<double, float>([](float x) { return static_cast<double>(x); });
  all["cvt.rn.f32.f64"] = operation<float, double>([](double x) { return canonical(static_cast<float>(x)); });
  all["cvt.rn.bf16.f32"] = operation<uint16_t, float>([](float x) { return bits_of_bf16(x); });
  all["cvt.f32.bf16"] = operation<float, uint16_t>([](uint16_t x) { return float_of_bf16(x); });
  all["cvt.rn.bf16x2.f32"] = operation<uint32_t, float, float>(
      [](float high, float low) { return uint32_t{bits_of_bf16(high)} << 16 | bits_of_bf16(low); });
}

}  // namespace elinvar::ptx
