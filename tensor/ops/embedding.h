#pragma once
// Looks up rows of a table by index, computes the gradient of the table, and writes rows.
#include "tensor/ops/index.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// y[i, :] = table[index[i], :], or zeros if index[i] is `rows`: the row is in another shard
struct EmbeddingArgs {
  In table;  // (rows, cols)
  In index;  // (picks) int64
  Out y;     // (picks, cols)
  int64_t picks, rows, cols;
};
void embedding(CpuStream&, const EmbeddingArgs&);
template <class B>
void embedding(GpuStream<B>&, const EmbeddingArgs&);

// y[i, :] = sum of x[list[k], :] over start[i] <= k < start[i + 1], in this order, by rule 12 of NUMERICS.md; zero if
// there are none. The gradient of a table is such sums, of the rows of dy at the Occurrences of an index
// (tensor/ops/index.h), and so are bags (tensor/ops/embedding_bag.h).
struct ListedRowsArgs {
  In x;      // (.., cols)
  In list;   // (picks) int64, of which start[rows] are read
  In start;  // (rows + 1) int64
  Out y;     // (rows, cols)
  int64_t picks, rows, cols;
};
void sum_listed_rows(CpuStream&, const ListedRowsArgs&);
template <class B>
void sum_listed_rows(GpuStream<B>&, const ListedRowsArgs&);

// table[index[i], :] = rows[i, :]
struct PutRowsArgs {
  In rows;   // (picks, cols)
  In index;  // (picks) int64, all different
  Out table;
  int64_t picks, cols;
};
void put_rows(CpuStream&, const PutRowsArgs&);
template <class B>
void put_rows(GpuStream<B>&, const PutRowsArgs&);

// table (V, C) float32 or float64, index int32 or int64 of any shape -> (index shape.., C)
Tensor embedding(const Tensor& table, const Tensor& index);
// dy (index shape.., C) -> (rows, C)
Tensor embedding_backward(const Tensor& dy, const Tensor& index, int64_t rows);

// The same for a table that is one shard of the rows; `index` counts all of them. Rows of other shards are zeros in y.
Tensor embedding_shard(const Tensor& table, const Tensor& index, const IndexShard& shard);
Tensor embedding_shard_backward(const Tensor& dy, const Tensor& index, const IndexShard& shard);

// Writes rows (N, C) over those of a contiguous table (V, C) of the same type at `index` (N), which must ascend.
void put_rows(const Tensor& rows, const Tensor& index, Tensor& table);

}  // namespace elinvar
