#include "tensor/cuda/kernel.h"

#include "tensor/ops/extrema.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// One thread per result.
template <bool kLargest>
__global__ void extreme_elements(ExtremaArgs a) {
  for (int64_t i = thread_of_grid(); i < a.outer * a.inner; i += grid_stride()) {
    const float* x = a.x.as<float>() + i / a.inner * a.extent * a.inner + i % a.inner;
    float best = x[0];
    int64_t at = 0;
    for (int64_t k = 1; k < a.extent; ++k) {
      const float v = x[k * a.inner];
      const bool better = kLargest ? best < v : v < best;
      if (better || (v != v && best == best)) {
        best = v;
        at = k;
      }
    }
    a.value.as<float>()[i] = best;
    a.index.as<int64_t>()[i] = at;
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void extrema(Gpu& stream, const ExtremaArgs& a) {
  launch(stream, "extrema", {.blocks = blocks_for(a.outer * a.inner)},
         a.largest ? HWY_NAMESPACE::extreme_elements<true> : HWY_NAMESPACE::extreme_elements<false>, a);
}

}  // namespace elinvar
