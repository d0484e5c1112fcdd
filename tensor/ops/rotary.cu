#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/ops/rotary.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// One thread per pair.
template <class T>
__global__ void turn_pairs(RotaryArgs a) {
  const int64_t n = a.half;
  for (int64_t pair = thread_of_grid(); pair < a.batch * a.time * a.heads * n; pair += grid_stride()) {
    const int64_t i = pair % n, head = pair / n, t = head / a.heads % a.time;
    const Reads<T> x{a.x.as<T>() + head * 2 * n};
    T* y = a.y.as<T>() + head * 2 * n;
    const float x1 = x[i], x2 = x[n + i], c = a.cos.as<float>()[t * n + i], sine = a.sin.as<float>()[t * n + i];
    const float s = a.inverse ? -sine : sine;
    y[i] = stored<T>(x1 * c - x2 * s);
    y[n + i] = stored<T>(x2 * c + x1 * s);
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void rotary(Gpu& stream, const RotaryArgs& a) {
  visit_activation(a.x.dtype, [&](auto zero) {
    launch(stream, "rotary", {.blocks = blocks_for(a.batch * a.time * a.heads * a.half)},
           HWY_NAMESPACE::turn_pairs<decltype(zero)>, a);
  });
}

}  // namespace elinvar
