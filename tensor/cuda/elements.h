#pragma once
// Elements in kernels. Computation is in float32 for bfloat16 elements, which are widened when read; results are
// rounded once, to nearest even, when written. Contiguous arrays are accessed 16 bytes at a time, several accesses at
// once.
#include "tensor/cuda/kernel.h"
#include "tensor/view.h"

namespace elinvar {

template <class T>
__device__ inline auto widened(T x) {
  if constexpr (std::is_same_v<T, bf16>) return static_cast<float>(x);
  else return x;
}

// Returns x as an element of type T. x has T's type or the type to which T is widened.
template <class T, class X>
__device__ inline T stored(X x) {
  if constexpr (std::is_same_v<T, bf16>) {
#ifdef __CUDACC__
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    return bf16(x);
#endif
  } else {
    static_assert(std::is_same_v<T, X>, "nothing but a rounding to bfloat16");
    return x;
  }
}

// An array to read.
template <class T>
struct Reads {
  const T* data;
  __device__ auto operator[](int64_t i) const { return widened(data[i]); }
};

// Arrays whose type, float32 or bfloat16, is known at run time only: for arguments too rare to compile for each type.
struct AnyReads {
  const void* data;
  bool narrow;
  explicit AnyReads(const In& x) : data(x.data), narrow(x.dtype == DType::bf16) {}
  __device__ float operator[](int64_t i) const {
    return narrow ? widened(static_cast<const bf16*>(data)[i]) : static_cast<const float*>(data)[i];
  }
};
struct AnyWrites {
  void* data;
  bool narrow;
  explicit AnyWrites(const Out& y) : data(y.data), narrow(y.dtype == DType::bf16) {}
  __device__ void store(int64_t i, float x) const {
    if (narrow) static_cast<bf16*>(data)[i] = stored<bf16>(x);
    else static_cast<float*>(data)[i] = x;
  }
};

// Calls f with an element of the type of activations: float or bf16.
template <class F>
decltype(auto) visit_activation(DType t, F&& f) {
  if (t == DType::bf16) return f(bf16{});
  return f(float{});
}

// Rounds two floats to bfloat16; the first is in the lower half.
__device__ inline uint32_t rounded_pair(float low, float high) {
#ifdef __CUDACC__
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return uint32_t{bf16(low).bits} | uint32_t{bf16(high).bits} << 16;
#endif
}

// Adjacent elements that one access reads or writes, or several of 16 bytes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Some {
  T v[kCount];

  __device__ auto at(int e) const { return widened(v[e]); }
  // Returns the elements stored<T>(f(e)).
  template <class F>
  __device__ static Some of(F f) {
    Some some;
#pragma unroll
    for (int e = 0; e < kCount; ++e) some.v[e] = stored<T>(f(e));
    return some;
  }
};
// Two bfloat16 elements share a register until they are used.
template <int kCount>
requires(kCount % 2 == 0) struct alignas(2 * kCount < 16 ? 2 * kCount : 16) Some<bf16, kCount> {
  uint32_t pair[kCount / 2];

  __device__ float at(int e) const {
    return std::bit_cast<float>(e % 2 == 0 ? pair[e / 2] << 16 : pair[e / 2] & 0xffff0000u);
  }
  template <class F>
  __device__ static Some of(F f) {
    Some some;
#pragma unroll
    for (int e = 0; e < kCount; e += 2) {
      const float low = f(e), high = f(e + 1);
      some.pair[e / 2] = rounded_pair(low, high);
    }
    return some;
  }
};

// The array as pieces of kCount elements.
template <int kCount, class T>
__device__ inline const Some<T, kCount>* pieces_of(const T* x) {
  return reinterpret_cast<const Some<T, kCount>*>(x);
}
template <int kCount, class T>
__device__ inline Some<T, kCount>* pieces_of(T* x) {
  return reinterpret_cast<Some<T, kCount>*>(x);
}

// The number of adjacent elements of these types that a thread processes at once.
template <class... T>
inline constexpr int kAtOnce = (std::is_same_v<T, bf16> || ...) ? 8 : 4;

template <class... T>
bool start_at_multiple(size_t bytes, const T*... arrays) {
  return ((reinterpret_cast<uintptr_t>(arrays) % bytes == 0) && ...);
}
template <class... T>
bool start_at_16(const T*... arrays) {
  return start_at_multiple(16, arrays...);
}

// For rows of `length` elements: calls f<T, kCount>() with the type of activations and how many elements a piece has,
// one unless all rows of these arrays (In or Out, whose data may be null) consist of whole pieces of 16 bytes.
template <class F, class... Arrays>
void visit_pieces(int64_t length, DType t, F f, const Arrays&... arrays) {
  const bool aligned = start_at_16(arrays.data...);
  visit_activation(t, [&](auto zero) {
    using T = decltype(zero);
    if (aligned && length % kAtOnce<T> == 0) f.template operator()<T, kAtOnce<T>>();
    else f.template operator()<T, 1>();
  });
}

// The same with pieces of two elements if they are bfloat16, whose loads have 4 bytes then, and of one otherwise: for
// sums down columns, whose threads take one or two each.
template <class F, class... Arrays>
void visit_pairs(int64_t length, DType t, F f, const Arrays&... arrays) {
  const bool pairs = length % 2 == 0 && start_at_multiple(2 * sizeof(bf16), arrays.data...);
  if (t != DType::bf16) f.template operator()<float, 1>();
  else if (pairs) f.template operator()<bf16, 2>();
  else f.template operator()<bf16, 1>();
}

// Returns the blocks for map_elements over n.
template <class... T>
int64_t blocks_for_elements(int64_t n) {
  return blocks_for((n + kAtOnce<T...> - 1) / kAtOnce<T...>);
}

// y[i] = f(x[i]...) for i < n, by all threads of the grid. `aligned` states that all arrays start at multiples of 16
// bytes. y may be one of x.
template <class F, class Y, class... X>
__device__ void map_elements(int64_t n, bool aligned, F f, Y* y, const X*... x) {
  constexpr int kCount = kAtOnce<Y, X...>;
  const int64_t pieces = aligned ? n / kCount : 0;
  for (int64_t i = thread_of_grid(); i < pieces; i += grid_stride()) {
    const auto map = [&](Some<X, kCount>... of_x) {  // by value: read completely before y is written
      return Some<Y, kCount>::of([&](int e) { return f(of_x.at(e)...); });
    };
    pieces_of<kCount>(y)[i] = map(pieces_of<kCount>(x)[i]...);
  }
  for (int64_t i = kCount * pieces + thread_of_grid(); i < n; i += grid_stride()) y[i] = stored<Y>(f(widened(x[i])...));
}

}  // namespace elinvar
