#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/cuda/reduce.h"
#include "tensor/ops/top1_correct.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// One warp per row.
template <class T>
__global__ void rank_targets(Top1CorrectArgs a) {
  const int64_t row = thread_of_grid() / 32, n = a.classes;
  if (row >= a.rows) return;
  const Reads<T> x{a.logits.as<T>() + row * n};
  const int64_t target = a.targets.as<int64_t>()[row];
  Top1 result = Top1::ignored;
  if (target != a.ignored) {
    const float best = x[target];
    int first = best == best;
    for (int64_t i = static_cast<int64_t>(threadIdx.x % 32); i < n; i += 32)
      first &= i < target ? x[i] < best : !(best < x[i]);
    for (int s = 16; s > 0; s /= 2) first &= __shfl_xor_sync(kWholeWarp, first, s);
    result = first != 0 ? Top1::correct : Top1::wrong;
  }
  if (threadIdx.x % 32 == 0) a.top1.as<uint8_t>()[row] = static_cast<uint8_t>(result);
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void top1_correct(Gpu& stream, const Top1CorrectArgs& a) {
  visit_activation(a.logits.dtype, [&](auto zero) {
    launch(stream, "hits", {.blocks = warp_blocks(a.rows)}, HWY_NAMESPACE::rank_targets<decltype(zero)>, a);
  });
}

}  // namespace elinvar
