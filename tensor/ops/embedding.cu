#include "tensor/cuda/kernel.h"

#include "tensor/cuda/columns.h"
#include "tensor/cuda/elements.h"
#include "tensor/ops/embedding.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// Threads take kCount adjacent columns of a row: one access of 16 bytes, or a single element.

template <int kCount>
__global__ void pick_rows(EmbeddingArgs a) {
  const int64_t pieces = a.cols / kCount;
  const auto* table = pieces_of<kCount>(a.table.as<float>());
  for (int64_t i = thread_of_grid(); i < a.picks * pieces; i += grid_stride()) {
    const int64_t pick = i / pieces, row = a.index.as<int64_t>()[pick];
    pieces_of<kCount>(a.y.as<float>())[i] =
        row < a.rows ? table[row * pieces + (i - pick * pieces)] : Some<float, kCount>{};
  }
}

template <int kCount>
struct SumsOfColumns {
  float v[kCount];

  SumsOfColumns() = default;
  __device__ explicit SumsOfColumns(float x) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) v[e] = x;
  }
  template <class Terms>
  __device__ friend SumsOfColumns operator+(SumsOfColumns a, const Terms& b) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) a.v[e] = a.v[e] + b.v[e];
    return a;
  }
};

template <int kCount>
__global__ void sum_rows(ListedRowsArgs a) {
  using Sums = SumsOfColumns<kCount>;
  const int64_t pieces = a.cols / kCount;
  const auto* x = pieces_of<kCount>(a.x.as<float>());
  for (int64_t i = thread_of_grid(); i < a.rows * pieces; i += grid_stride()) {
    const int64_t row = i / pieces, c = i - row * pieces;
    const int64_t first = a.start.as<int64_t>()[row], n = a.start.as<int64_t>()[row + 1] - first;
    const int64_t* list = a.list.as<int64_t>() + first;
    const Sums sums =
        column_sum_of_thread<Sums>(n, [&](const Sums& acc, int64_t k) { return acc + x[list[k] * pieces + c]; });
    pieces_of<kCount>(a.y.as<float>())[i] = Some<float, kCount>::of([&](int e) { return sums.v[e]; });
  }
}

template <int kCount>
__global__ void write_rows(PutRowsArgs a) {
  const int64_t pieces = a.cols / kCount;
  for (int64_t i = thread_of_grid(); i < a.picks * pieces; i += grid_stride()) {
    const int64_t pick = i / pieces;
    pieces_of<kCount>(a.table.as<float>())[a.index.as<int64_t>()[pick] * pieces + (i - pick * pieces)] =
        pieces_of<kCount>(a.rows.as<float>())[i];
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void embedding(Gpu& stream, const EmbeddingArgs& a) {
  using namespace HWY_NAMESPACE;
  const bool whole = a.cols % 4 == 0 && start_at_16(a.table.data, a.y.data);
  if (whole) launch(stream, "embedding", {.blocks = blocks_for(a.picks * a.cols / 4)}, pick_rows<4>, a);
  else launch(stream, "embedding", {.blocks = blocks_for(a.picks * a.cols)}, pick_rows<1>, a);
}

template <>
void sum_listed_rows(Gpu& stream, const ListedRowsArgs& a) {
  using namespace HWY_NAMESPACE;
  const bool whole = a.cols % 4 == 0 && start_at_16(a.x.data, a.y.data);
  if (whole) launch(stream, "sum_listed_rows", {.blocks = blocks_for(a.rows * a.cols / 4)}, sum_rows<4>, a);
  else launch(stream, "sum_listed_rows", {.blocks = blocks_for(a.rows * a.cols)}, sum_rows<1>, a);
}

template <>
void put_rows(Gpu& stream, const PutRowsArgs& a) {
  using namespace HWY_NAMESPACE;
  const bool whole = a.cols % 4 == 0 && start_at_16(a.table.data, a.rows.data);
  if (whole) launch(stream, "put_rows", {.blocks = blocks_for(a.picks * a.cols / 4)}, write_rows<4>, a);
  else launch(stream, "put_rows", {.blocks = blocks_for(a.picks * a.cols)}, write_rows<1>, a);
}

}  // namespace elinvar
