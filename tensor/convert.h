#pragma once
// Conversion between element types: float to bf16 rounds to nearest even; float to integer truncates toward zero, with
// 0 for NaN and values out of range; integers wrap.
#include <limits>
#include <type_traits>

#include "tensor/dtype.h"

namespace elinvar {

template <class To, class From>
constexpr To convert(From x) {
  if constexpr (std::is_same_v<From, bf16>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bf16>) {
    return bf16(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // The bounds are zero or powers of two, hence exact; anything outside, and NaN, gives 0.
    constexpr auto low = static_cast<From>(std::numeric_limits<To>::min());
    const From high = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * From{2};
    return (x >= low || x > low - From{1}) && x < high ? static_cast<To>(x) : To{0};
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace elinvar
