#include "tensor/cuda/kernel.h"

#include "tensor/cuda/columns.h"
#include "tensor/ops/embedding.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

__global__ void pick_rows(EmbeddingArgs a) {
  for (int64_t i = thread_of_grid(); i < a.picks * a.cols; i += grid_stride()) {
    const int64_t row = a.index.as<int64_t>()[i / a.cols];
    a.y.as<float>()[i] = row < a.rows ? a.table.as<float>()[row * a.cols + i % a.cols] : 0.0f;
  }
}

// One thread per element of the table.
__global__ void sum_rows(EmbeddingBackwardArgs a) {
  const float* dy = a.dy.as<float>();
  for (int64_t i = thread_of_grid(); i < a.rows * a.cols; i += grid_stride()) {
    const int64_t row = i / a.cols, c = i % a.cols;
    const int64_t first = a.start.as<int64_t>()[row], n = a.start.as<int64_t>()[row + 1] - first;
    const int64_t* order = a.order.as<int64_t>() + first;
    a.dtable.as<float>()[i] =
        column_sum_of_thread<float>(n, [&](float acc, int64_t k) { return acc + dy[order[k] * a.cols + c]; });
  }
}

__global__ void write_rows(PutRowsArgs a) {
  for (int64_t i = thread_of_grid(); i < a.picks * a.cols; i += grid_stride())
    a.table.as<float>()[a.index.as<int64_t>()[i / a.cols] * a.cols + i % a.cols] = a.rows.as<float>()[i];
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void embedding(Gpu& stream, const EmbeddingArgs& a) {
  launch(stream, "embedding", {.blocks = blocks_for(a.picks * a.cols)}, HWY_NAMESPACE::pick_rows, a);
}

template <>
void embedding_backward(Gpu& stream, const EmbeddingBackwardArgs& a) {
  launch(stream, "embedding_backward", {.blocks = blocks_for(a.rows * a.cols)}, HWY_NAMESPACE::sum_rows, a);
}

template <>
void put_rows(Gpu& stream, const PutRowsArgs& a) {
  launch(stream, "put_rows", {.blocks = blocks_for(a.picks * a.cols)}, HWY_NAMESPACE::write_rows, a);
}

}  // namespace elinvar
