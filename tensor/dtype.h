#pragma once
// Element types. float32 is the working type; float64 exists on the CPU so that gradients can be checked;
// bf16 is for storage; the integers are for indices, labels, masks and pixels.
#include <bit>
#include <cstdint>

namespace elinvar {

enum class DType : uint8_t { f32, f64, bf16, i32, i64, u8 };

// bfloat16: the upper half of a binary32. Conversion from float rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  constexpr explicit bf16(float x) {
    const uint32_t b = std::bit_cast<uint32_t>(x);
    const bool nan = (b & 0x7fffffffu) > 0x7f800000u;
    bits =
        nan ? static_cast<uint16_t>((b >> 16) | 0x40u) : static_cast<uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 2;
    case DType::i32:
      return 4;
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType t) {
  switch (t) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::i32:
      return "int32";
    case DType::i64:
      return "int64";
    case DType::u8:
      return "uint8";
  }
  return "?";
}

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::u8;
}

constexpr bool is_floating(DType t) { return t == DType::f32 || t == DType::f64 || t == DType::bf16; }

// Calls f with a value of the element type, so that `decltype(zero)` names it.
template <class F>
decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
    case DType::f64:
      return f(double{});
    case DType::bf16:
      return f(bf16{});
    case DType::i32:
      return f(int32_t{});
    case DType::i64:
      return f(int64_t{});
    case DType::u8:
      return f(uint8_t{});
    case DType::f32:
      break;
  }
  return f(float{});
}

// Like visit_dtype() for the types that kernels compute in, float and double. The caller must have refused other types.
template <class F>
decltype(auto) visit_float(DType t, F&& f) {
  if (t == DType::f64) return f(double{});
  return f(float{});
}

}  // namespace elinvar
