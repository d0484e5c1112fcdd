// Integer arithmetic and comparison. Sums and products wrap around.
#include <cstdint>
#include <limits>

#include "tests/ptx/failure.h"
#include "tests/ptx/operation.h"

namespace elinvar::ptx {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
T sum(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <class T>
T difference(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <class T>
T low_product(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
// The quotient is unspecified in PTX if b is zero, so no kernel may ask for it.
template <class T>
T quotient(T a, T b) {
  if (b == 0) throw Fault("division by zero");
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return difference<T>(0, a);
  return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  if (b == 0) throw Fault("division by zero");
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}

template <class T>
void add_arithmetic(Operations& all, const std::string& type) {
  all["add." + type] = operation<T, T, T>([](T a, T b) { return sum(a, b); });
  all["sub." + type] = operation<T, T, T>([](T a, T b) { return difference(a, b); });
  all["mul.lo." + type] = operation<T, T, T>([](T a, T b) { return low_product(a, b); });
  all["mad.lo." + type] = operation<T, T, T, T>([](T a, T b, T c) { return sum(low_product(a, b), c); });
  all["div." + type] = partial_operation<T, T, T>([](T a, T b) { return quotient(a, b); });
  all["rem." + type] = partial_operation<T, T, T>([](T a, T b) { return remainder(a, b); });
  all["max." + type] = operation<T, T, T>([](T a, T b) { return a > b ? a : b; });
  all["min." + type] = operation<T, T, T>([](T a, T b) { return a < b ? a : b; });
  if constexpr (std::is_signed_v<T>) {
    all["neg." + type] = operation<T, T>([](T a) { return difference<T>(0, a); });
    all["abs." + type] = operation<T, T>([](T a) { return a < 0 ? difference<T>(0, a) : a; });
  }
}

template <class T>
void add_comparisons(Operations& all, const std::string& type) {
  all["setp.eq." + type] = operation<Predicate, T, T>([](T a, T b) { return a == b; });
  all["setp.ne." + type] = operation<Predicate, T, T>([](T a, T b) { return a != b; });
  all["setp.lt." + type] = operation<Predicate, T, T>([](T a, T b) { return a < b; });
  all["setp.le." + type] = operation<Predicate, T, T>([](T a, T b) { return a <= b; });
  all["setp.gt." + type] = operation<Predicate, T, T>([](T a, T b) { return a > b; });
  all["setp.ge." + type] = operation<Predicate, T, T>([](T a, T b) { return a >= b; });
}

// Products of 32 bits with all 64 bits of the result, or the upper half of them.
template <class T, class Wide>
void add_wide_products(Operations& all, const std::string& type) {
  all["mul.wide." + type] = operation<Wide, T, T>([](T a, T b) { return Wide{a} * Wide{b}; });
  all["mad.wide." + type] =
      operation<Wide, T, T, Wide>([](T a, T b, Wide c) { return sum(static_cast<Wide>(Wide{a} * Wide{b}), c); });
  all["mul.hi." + type] = operation<T, T, T>([](T a, T b) { return static_cast<T>(Wide{a} * Wide{b} >> 32); });
}

}  // namespace

void add_integer_operations(Operations& all) {
  const auto add = [&all]<class T>(T, const char* type) {
    add_arithmetic<T>(all, type);
    add_comparisons<T>(all, type);
  };
  add(int16_t{}, "s16");
  add(int32_t{}, "s32");
  add(int64_t{}, "s64");
  add(uint16_t{}, "u16");
  add(uint32_t{}, "u32");
  add(uint64_t{}, "u64");
  add_comparisons<uint16_t>(all, "b16");
  add_comparisons<uint32_t>(all, "b32");
  add_comparisons<uint64_t>(all, "b64");
  add_wide_products<int32_t, int64_t>(all, "s32");
  add_wide_products<uint32_t, uint64_t>(all, "u32");
}

}  // namespace elinvar::ptx
