// One vector of elements, the same interface for every instruction set: Vec<float> is a Highway vector where the
// target has FMA units, and a single lane elsewhere; Vec<T> of any other type is a single lane (float64 exists to
// check gradients, not for speed). A kernel written against Vec is therefore its own scalar specification.
//
// Included once per target inside foreach_target.h (Note [Kernels per target] in tensor/README.md), hence no
// ordinary include guard. `fma` is one rounding on every target: never use Highway's MulAdd, which rounds twice
// on its scalar target.
#if defined(ELINVAR_TENSOR_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_SIMD_INL_H_
#undef ELINVAR_TENSOR_SIMD_INL_H_
#else
#define ELINVAR_TENSOR_SIMD_INL_H_
#endif

#ifndef ELINVAR_DEVICE_CODE  // tensor/cuda/kernel.h replaces it
#include <hwy/highway.h>
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {
#ifndef ELINVAR_DEVICE_CODE
namespace hn = hwy::HWY_NAMESPACE;
#endif

static_assert(HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SCALAR,
              "a target without a test (tensor/isa.h): disable it");

#ifndef ELINVAR_DEVICE_CODE
// Calls f with a zero of the type in which a kernel computes. Only float has a version for each target: vectors of
// other types are one lane everywhere, so a kernel has them for one target, at which ELINVAR_KERNEL calls it.
template <class F>
HWY_INLINE void visit_element(DType t, F&& f) {
#if HWY_TARGET == HWY_STATIC_TARGET
  visit_float(t, f);
#else
  static_cast<void>(t);
  f(float{});
#endif
}

// The same for kernels that also compute in integers.
template <class F>
HWY_INLINE void visit_any_element(DType t, F&& f) {
#if HWY_TARGET == HWY_STATIC_TARGET
  visit_dtype(t, f);
#else
  static_cast<void>(t);
  f(float{});
#endif
}
#endif

// A single lane.
template <class T>
struct Vec {
  T v;
  static constexpr int64_t kLanes = 1;
  using Element = T;
  using Mask = bool;

  static HWY_INLINE Vec load(const T* p) { return {*p}; }
  static HWY_INLINE Vec load(const T* p, int64_t n) { return {n > 0 ? *p : T{0}}; }  // n elements, then zeros
  static HWY_INLINE Vec set(T x) { return {x}; }
  HWY_INLINE void store(T* p) const { *p = v; }
  HWY_INLINE void store(T* p, int64_t n) const {
    if (n > 0) *p = v;
  }
};

// Integers wrap, for which C++ requires unsigned arithmetic.
template <class T, bool = std::is_integral_v<T>>
struct Wrapping {
  using Type = T;
};
template <class T>
struct Wrapping<T, true> {
  using Type = std::make_unsigned_t<T>;
};
template <class T>
using wrapping = typename Wrapping<T>::Type;

template <class T>
HWY_INLINE Vec<T> operator+(Vec<T> a, Vec<T> b) {
  return {static_cast<T>(static_cast<wrapping<T>>(a.v) + static_cast<wrapping<T>>(b.v))};
}
template <class T>
HWY_INLINE Vec<T> operator-(Vec<T> a, Vec<T> b) {
  return {static_cast<T>(static_cast<wrapping<T>>(a.v) - static_cast<wrapping<T>>(b.v))};
}
template <class T>
HWY_INLINE Vec<T> operator*(Vec<T> a, Vec<T> b) {
  return {static_cast<T>(static_cast<wrapping<T>>(a.v) * static_cast<wrapping<T>>(b.v))};
}
template <class T>
HWY_INLINE Vec<T> operator/(Vec<T> a, Vec<T> b) {
  return {static_cast<T>(a.v / b.v)};
}
template <class T>
HWY_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
  return {std::fma(a.v, b.v, c.v)};
}
template <class T>
HWY_INLINE Vec<T> sqrt(Vec<T> a) {
  return {std::sqrt(a.v)};
}
template <class T>
HWY_INLINE Vec<T> rint(Vec<T> a) {
  return {std::nearbyint(a.v)};
}  // ties to even
template <class T>
HWY_INLINE Vec<T> abs(Vec<T> a) {
  return {std::abs(a.v)};
}
template <class T>
HWY_INLINE Vec<T> neg(Vec<T> a) {
  return {static_cast<T>(-a.v)};
}
template <class T>
HWY_INLINE bool operator<(Vec<T> a, Vec<T> b) {
  return a.v < b.v;
}
template <class T>
HWY_INLINE bool operator<=(Vec<T> a, Vec<T> b) {
  return a.v <= b.v;
}
template <class T>
HWY_INLINE bool operator==(Vec<T> a, Vec<T> b) {
  return a.v == b.v;
}
template <class T>
HWY_INLINE Vec<T> select(bool m, Vec<T> yes, Vec<T> no) {
  return m ? yes : no;
}
HWY_INLINE bool mask_and(bool a, bool b) { return a && b; }
HWY_INLINE bool mask_not(bool a) { return !a; }
HWY_INLINE bool any(bool a) { return a; }

// Integer views of a float lane, for math-inl.h: bits_of, float_of, and arithmetic on Vec<int32_t>.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE Vec<int32_t> bits_of(Vec<float> a) { return {std::bit_cast<int32_t>(a.v)}; }
HWY_INLINE Vec<float> float_of(Vec<int32_t> a) { return {std::bit_cast<float>(a.v)}; }
HWY_INLINE Vec<int32_t> to_int(Vec<float> a) { return {static_cast<int32_t>(a.v)}; }  // exact: |a| < 2^31, integral
HWY_INLINE Vec<float> to_float(Vec<int32_t> a) { return {static_cast<float>(a.v)}; }
template <int kBits>
HWY_INLINE Vec<int32_t> shift_left(Vec<int32_t> a) {
  return {static_cast<int32_t>(static_cast<uint32_t>(a.v) << kBits)};
}
template <int kBits>
HWY_INLINE Vec<int32_t> shift_right(Vec<int32_t> a) {
  return {a.v >> kBits};
}  // arithmetic
HWY_INLINE Vec<int32_t> operator&(Vec<int32_t> a, Vec<int32_t> b) { return {a.v & b.v}; }
HWY_INLINE Vec<int32_t> operator|(Vec<int32_t> a, Vec<int32_t> b) { return {a.v | b.v}; }
using FloatBits = Vec<int32_t>;
#else

// All float lanes of the target, and their bits.
template <>
struct Vec<float> {
  using D = hn::ScalableTag<float>;
  hn::Vec<D> v;
  static constexpr int64_t kLanes = hn::MaxLanes(D());
  using Element = float;
  using Mask = hn::Mask<D>;

  static HWY_INLINE Vec load(const float* p) { return {hn::LoadU(D(), p)}; }
  static HWY_INLINE Vec load(const float* p, int64_t n) {
    return {n >= kLanes ? hn::LoadU(D(), p) : hn::MaskedLoad(hn::FirstN(D(), static_cast<size_t>(n)), D(), p)};
  }
  static HWY_INLINE Vec set(float x) { return {hn::Set(D(), x)}; }
  HWY_INLINE void store(float* p) const { hn::StoreU(v, D(), p); }
  HWY_INLINE void store(float* p, int64_t n) const {
    if (n >= kLanes) hn::StoreU(v, D(), p);
    else hn::BlendedStore(v, hn::FirstN(D(), static_cast<size_t>(n)), D(), p);
  }
};
using V32 = Vec<float>;
HWY_INLINE V32 operator+(V32 a, V32 b) { return {hn::Add(a.v, b.v)}; }
HWY_INLINE V32 operator-(V32 a, V32 b) { return {hn::Sub(a.v, b.v)}; }
HWY_INLINE V32 operator*(V32 a, V32 b) { return {hn::Mul(a.v, b.v)}; }
HWY_INLINE V32 operator/(V32 a, V32 b) { return {hn::Div(a.v, b.v)}; }
HWY_INLINE V32 fma(V32 a, V32 b, V32 c) { return {hn::MulAdd(a.v, b.v, c.v)}; }
HWY_INLINE V32 sqrt(V32 a) { return {hn::Sqrt(a.v)}; }
HWY_INLINE V32 rint(V32 a) { return {hn::Round(a.v)}; }
HWY_INLINE V32 abs(V32 a) { return {hn::Abs(a.v)}; }
HWY_INLINE V32 neg(V32 a) { return {hn::Neg(a.v)}; }
HWY_INLINE V32::Mask operator<(V32 a, V32 b) { return hn::Lt(a.v, b.v); }
HWY_INLINE V32::Mask operator<=(V32 a, V32 b) { return hn::Le(a.v, b.v); }
HWY_INLINE V32::Mask operator==(V32 a, V32 b) { return hn::Eq(a.v, b.v); }
HWY_INLINE V32 select(V32::Mask m, V32 yes, V32 no) { return {hn::IfThenElse(m, yes.v, no.v)}; }
HWY_INLINE V32::Mask mask_and(V32::Mask a, V32::Mask b) { return hn::And(a, b); }
HWY_INLINE V32::Mask mask_not(V32::Mask a) { return hn::Not(a); }
HWY_INLINE bool any(V32::Mask a) { return !hn::AllFalse(V32::D(), a); }

struct FloatBits {
  using D = hn::ScalableTag<int32_t>;
  hn::Vec<D> v;
  static HWY_INLINE FloatBits set(int32_t x) { return {hn::Set(D(), x)}; }
};
HWY_INLINE FloatBits bits_of(V32 a) { return {hn::BitCast(FloatBits::D(), a.v)}; }
HWY_INLINE V32 float_of(FloatBits a) { return {hn::BitCast(V32::D(), a.v)}; }
HWY_INLINE FloatBits to_int(V32 a) { return {hn::ConvertTo(FloatBits::D(), a.v)}; }
HWY_INLINE V32 to_float(FloatBits a) { return {hn::ConvertTo(V32::D(), a.v)}; }
template <int kBits>
HWY_INLINE FloatBits shift_left(FloatBits a) {
  return {hn::ShiftLeft<kBits>(a.v)};
}
template <int kBits>
HWY_INLINE FloatBits shift_right(FloatBits a) {
  return {hn::ShiftRight<kBits>(a.v)};
}
HWY_INLINE FloatBits operator+(FloatBits a, FloatBits b) { return {hn::Add(a.v, b.v)}; }
HWY_INLINE FloatBits operator-(FloatBits a, FloatBits b) { return {hn::Sub(a.v, b.v)}; }
HWY_INLINE FloatBits operator&(FloatBits a, FloatBits b) { return {hn::And(a.v, b.v)}; }
HWY_INLINE FloatBits operator|(FloatBits a, FloatBits b) { return {hn::Or(a.v, b.v)}; }
#endif

// The larger or smaller by the select `b < a ? a : b`: a NaN in a is dropped, one in b is kept, and of two
// zeros b is taken. NUMERICS.md, rule 13.
template <class T>
HWY_INLINE Vec<T> max(Vec<T> a, Vec<T> b) {
  return select(b < a, a, b);
}
template <class T>
HWY_INLINE Vec<T> min(Vec<T> a, Vec<T> b) {
  return select(a < b, a, b);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
