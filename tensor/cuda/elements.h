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

template <class T, int kCount>
struct alignas(16) Some {
  T v[kCount];
};

// The number of adjacent elements of these types that a thread processes at once.
template <class... T>
inline constexpr int kAtOnce = (std::is_same_v<T, bf16> || ...) ? 8 : 4;

template <class... T>
bool start_at_16(const T*... arrays) {
  return ((reinterpret_cast<uintptr_t>(arrays) % 16 == 0) && ...);
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
      Some<Y, kCount> of_y;
#pragma unroll
      for (int e = 0; e < kCount; ++e) of_y.v[e] = stored<Y>(f(widened(of_x.v[e])...));
      return of_y;
    };
    reinterpret_cast<Some<Y, kCount>*>(y)[i] = map(reinterpret_cast<const Some<X, kCount>*>(x)[i]...);
  }
  for (int64_t i = kCount * pieces + thread_of_grid(); i < n; i += grid_stride()) y[i] = stored<Y>(f(widened(x[i])...));
}

}  // namespace elinvar
