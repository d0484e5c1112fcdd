#include "tensor/cuda/kernel.h"

#include "tensor/cuda/reduce.h"
#include "tensor/ops/experts.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

// One thread per element of the experts' rows.
__global__ void dispatch_elements(DispatchArgs a) {
  for (int64_t i = thread_of_grid(); i < a.experts * a.capacity * a.cols; i += grid_stride()) {
    const int64_t choice = a.choice_of(i / a.cols);
    float y = 0.0f;
    if (choice >= 0) {
      y = a.x.as<float>()[choice % a.tokens * a.cols + i % a.cols];
      if (a.weight.data != nullptr) y = y * a.weight.as<float>()[choice];
    }
    a.y.as<float>()[i] = y;
  }
}

// One thread per element of the tokens.
__global__ void combine_elements(CombineArgs a) {
  for (int64_t i = thread_of_grid(); i < a.tokens * a.cols; i += grid_stride()) {
    const int64_t token = i / a.cols, c = i % a.cols;
    V acc{0.0f};
    for (int64_t j = 0; j < a.chosen; ++j) {
      const int64_t choice = j * a.tokens + token, row = a.row_of(choice);
      if (row < 0) continue;
      const V y{a.y.as<float>()[row * a.cols + c]};
      acc = a.weight.data != nullptr ? fma(V{a.weight.as<float>()[choice]}, y, acc) : acc + y;
    }
    a.x.as<float>()[i] = acc.v;
  }
}

// One warp per choice.
__global__ void dots_of_choices(CombineWeightArgs a) {
  const int64_t choice = thread_of_grid() / 32, cols = a.of.cols;
  if (choice >= a.of.chosen * a.of.tokens) return;
  const int64_t row = a.of.row_of(choice);
  float dot = 0.0f;
  if (row >= 0) {
    const float *dx = a.dx.as<float>() + choice % a.of.tokens * cols, *y = a.of.y.as<float>() + row * cols;
    dot = warp_row_dot<float>(
        cols, [&](int64_t i) { return dx[i]; }, [&](int64_t i) { return y[i]; });
  }
  if (threadIdx.x % 32 == 0) a.dweight.as<float>()[choice] = dot;
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void dispatch(Gpu& stream, const DispatchArgs& a) {
  launch(stream, "dispatch", {.blocks = blocks_for(a.experts * a.capacity * a.cols)}, HWY_NAMESPACE::dispatch_elements,
         a);
}

template <>
void combine(Gpu& stream, const CombineArgs& a) {
  launch(stream, "combine", {.blocks = blocks_for(a.tokens * a.cols)}, HWY_NAMESPACE::combine_elements, a);
}

template <>
void combine_weight(Gpu& stream, const CombineWeightArgs& a) {
  launch(stream, "combine_weight", {.blocks = warp_blocks(a.of.chosen * a.of.tokens)}, HWY_NAMESPACE::dots_of_choices,
         a);
}

}  // namespace elinvar
