#include "tensor/cuda/kernel.h"

#include <cmath>

#include "tensor/cuda/elements.h"
#include "tensor/ops/dropout.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// One thread per block of four random words.
template <class T>
__global__ void drop_elements(const T* x, T* y, int64_t n, uint32_t threshold, float scale, Rng rng, const Rng* key) {
  if (key != nullptr) rng = {key->seed, key->step, key->vrank, rng.op};
  for (int64_t block = thread_of_grid(); 4 * block < n; block += grid_stride()) {
    const Random4 words = rng.block(static_cast<uint32_t>(block));
    for (int64_t j = 0; j < 4 && 4 * block + j < n; ++j)
      y[4 * block + j] = stored<T>((words.v[j] >> 8) >= threshold ? widened(x[4 * block + j]) * scale : 0.0f);
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void dropout(Gpu& stream, const DropoutArgs& a) {
  visit_activation(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, "dropout", {.blocks = blocks_for((a.n + 3) / 4)}, HWY_NAMESPACE::drop_elements<T>, a.x.as<T>(),
           a.y.as<T>(), a.n, static_cast<uint32_t>(std::ceil(a.p * 0x1p24)), static_cast<float>(1.0 / (1.0 - a.p)),
           a.rng, a.key);
  });
}

}  // namespace elinvar
