#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/cuda/reduce.h"
#include "tensor/math-inl.h"
#include "tensor/ops/cross_entropy_shards-inl.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

// One warp per row.
template <class T>
__global__ void terms_of_rows(ShardTermsArgs a) {
  const int64_t row = thread_of_grid() / 32, n = a.classes;
  if (row >= a.rows) return;
  const auto write = [&](int64_t which, float value) {
    if (threadIdx.x % 32 == 0) a.terms.as<float>()[which * a.rows + row] = value;
  };
  const Reads<T> x{a.logits.as<T>() + row * n};
  const int64_t target = a.targets.as<int64_t>()[row], at = target - a.first;
  if (target == a.ignored) {
    for (int64_t which = 0; which < ShardTerm::count; ++which) write(which, 0.0f);
    return;
  }
  const V m{warp_row_max<float>(x, n)};
  write(ShardTerm::max, m.v);
  write(ShardTerm::sum, warp_row_sum<float>(n, [&](int64_t i) { return exp(V{x[i]} - m).v; }));
  write(ShardTerm::shifted_sum,
        a.smoothing != 0.0 ? warp_row_sum<float>(n, [&](int64_t i) { return (V{x[i]} - m).v; }) : 0.0f);
  const bool here = at >= 0 && at < n;
  const float own = here ? x[at] : 0.0f;
  write(ShardTerm::target, own);
  int first = own == m.v;
  for (int64_t i = static_cast<int64_t>(threadIdx.x % 32); here && i < at; i += 32) first &= !(x[i] == m.v);
  for (int s = 16; s > 0; s /= 2) first &= __shfl_xor_sync(kWholeWarp, first, s);
  write(ShardTerm::top, !here ? 0.0f : first != 0 ? 2.0f : 1.0f);
}

__global__ void losses(ShardLossesArgs a) {
  for (int64_t row = thread_of_grid(); row < a.rows; row += grid_stride()) losses_of_rows<float>(a, row, 1);
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void cross_entropy_terms(Gpu& stream, const ShardTermsArgs& a) {
  visit_activation(a.logits.dtype, [&](auto zero) {
    launch(stream, "cross_entropy_terms", {.blocks = warp_blocks(a.rows)}, HWY_NAMESPACE::terms_of_rows<decltype(zero)>,
           a);
  });
}

template <>
void cross_entropy_of_terms(Gpu& stream, const ShardLossesArgs& a) {
  launch(stream, "cross_entropy_of_terms", {.blocks = blocks_for(a.rows)}, HWY_NAMESPACE::losses, a);
}

}  // namespace elinvar
