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

// A thread for each target, which looks at every pick of its line.
__global__ void sum_picks(GatherBackwardArgs a) {
  const int64_t n = a.outer * a.extent * a.inner;
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    const int64_t outer = i / (a.extent * a.inner), target = i / a.inner % a.extent, c = i % a.inner;
    const float* dy = a.dy.as<float>() + outer * a.picks * a.inner + c;
    const int64_t* index = a.index.as<int64_t>() + outer * a.picks * a.inner + c;
    PairTree<float, AddNodes> tree{AddNodes()};
    float chain = 0.0f;
    int64_t terms = 0;
    for (int64_t k = 0; k < a.picks; ++k) {
      if (index[k * a.inner] != target) continue;
      chain = chain + dy[k * a.inner];
      if (++terms % kColumnLeaf != 0) continue;
      tree.add(chain);
      chain = 0.0f;
    }
    if (terms % kColumnLeaf != 0) tree.add(chain);
    a.dx.as<float>()[i] = terms > 0 ? 0.0f + tree.root() : 0.0f;
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void gather(Gpu& stream, const GatherArgs& a) {
  require_f32("gather", a.x.dtype);
  launch(stream, "gather", {.blocks = blocks_for(a.outer * a.picks * a.inner)}, HWY_NAMESPACE::pick_elements, a);
}

template <>
void gather_backward(Gpu& stream, const GatherBackwardArgs& a) {
  require_f32("gather_backward", a.dy.dtype);
  launch(stream, "gather_backward", {.blocks = blocks_for(a.outer * a.extent * a.inner)}, HWY_NAMESPACE::sum_picks, a);
}

}  // namespace elinvar
