#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/cuda/reduce.h"
#include "tensor/ops/hits.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// A warp for each row.
template <class T>
__global__ void rank_targets(HitsArgs a) {
  const int64_t row = thread_of_grid() / 32, n = a.classes;
  if (row >= a.rows) return;
  const Reads<T> x{a.logits.as<T>() + row * n};
  const int64_t target = a.targets.as<int64_t>()[row];
  Hit hit = Hit::ignored;
  if (target != a.ignored) {
    const float best = x[target];
    int first = best == best;
    for (int64_t i = static_cast<int64_t>(threadIdx.x % 32); i < n; i += 32)
      first &= i < target ? x[i] < best : !(best < x[i]);
    for (int s = 16; s > 0; s /= 2) first &= __shfl_xor_sync(kWholeWarp, first, s);
    hit = first != 0 ? Hit::right : Hit::wrong;
  }
  if (threadIdx.x % 32 == 0) a.hits.as<uint8_t>()[row] = static_cast<uint8_t>(hit);
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void hits(Gpu& stream, const HitsArgs& a) {
  visit_activation(a.logits.dtype, [&](auto zero) {
    launch(stream, "hits", {.blocks = warp_blocks(a.rows)}, HWY_NAMESPACE::rank_targets<decltype(zero)>, a);
  });
}

}  // namespace elinvar
