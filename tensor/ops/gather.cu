#include "tensor/cuda/kernel.h"

#include "tensor/cuda/columns.h"
#include "tensor/ops/gather.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

__global__ void pick_elements(GatherArgs a) {
  const int64_t n = a.outer * a.picks * a.inner;
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    const int64_t outer = i / (a.picks * a.inner), c = i % a.inner;
    a.y.as<float>()[i] = a.x.as<float>()[(outer * a.extent + a.index.as<int64_t>()[i]) * a.inner + c];
  }
}

// One thread per pick, sorted by target; the first thread of a target sums all its picks.
__global__ void sum_picks(GatherBackwardArgs a) {
  const int64_t n = a.outer * a.picks * a.inner;
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    const int64_t outer = i / (a.picks * a.inner), k = i / a.inner % a.picks, c = i % a.inner;
    const int64_t line = outer * a.picks * a.inner + c;
    const float* dy = a.dy.as<float>() + line;
    const int64_t *index = a.index.as<int64_t>() + line, *order = a.order.as<int64_t>() + line;
    const auto target = [&](int64_t j) { return index[order[j * a.inner] * a.inner]; };
    if (k > 0 && target(k - 1) == target(k)) continue;
    int64_t terms = 1;
    while (k + terms < a.picks && target(k + terms) == target(k)) ++terms;
    a.dx.as<float>()[(outer * a.extent + target(k)) * a.inner + c] = column_sum_of_thread<float>(
        terms, [&](float acc, int64_t j) { return acc + dy[order[(k + j) * a.inner] * a.inner]; });
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void gather(Gpu& stream, const GatherArgs& a) {
  launch(stream, "gather", {.blocks = blocks_for(a.outer * a.picks * a.inner)}, HWY_NAMESPACE::pick_elements, a);
}

template <>
void gather_backward(Gpu& stream, const GatherBackwardArgs& a) {
  launch(stream, "gather_backward", {.blocks = blocks_for(a.outer * a.picks * a.inner)}, HWY_NAMESPACE::sum_picks, a);
}

}  // namespace elinvar
