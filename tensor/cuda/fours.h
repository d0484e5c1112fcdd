#pragma once
// Elements of contiguous arrays, four to a thread at once: accesses of 16 bytes, several of them under way together.
#include "tensor/cuda/kernel.h"

namespace elinvar {

template <class T>
struct alignas(16) Four {
  T v[4];
};

template <class... T>
bool start_at_16(const T*... arrays) {
  return ((reinterpret_cast<uintptr_t>(arrays) % 16 == 0) && ...);
}

// Blocks for map_elements over n.
inline int64_t blocks_for_fours(int64_t n) { return blocks_for((n + 3) / 4); }

// y[i] = f(x[i]...) for i < n, by all threads of the grid; in_fours: all arrays start at multiples of 16 bytes. y may
// be one of x.
template <class F, class Y, class... X>
__device__ void map_elements(int64_t n, bool in_fours, F f, Y* y, const X*... x) {
  const int64_t fours = in_fours ? n / 4 : 0;
  for (int64_t i = thread_of_grid(); i < fours; i += grid_stride()) {
    const auto map = [&](Four<X>... of_x) {  // by value: read as a whole, before y is written
      Four<Y> of_y;
#pragma unroll
      for (int e = 0; e < 4; ++e) of_y.v[e] = f(of_x.v[e]...);
      return of_y;
    };
    reinterpret_cast<Four<Y>*>(y)[i] = map(reinterpret_cast<const Four<X>*>(x)[i]...);
  }
  for (int64_t i = 4 * fours + thread_of_grid(); i < n; i += grid_stride()) y[i] = f(x[i]...);
}

}  // namespace elinvar
