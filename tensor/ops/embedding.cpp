#include "tensor/ops/embedding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/embedding.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/columns-inl.h"
#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/ops/index.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Computes rows [begin, end) of the result.
void sums_of_listed_rows(const ListedRowsArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const int64_t* start = a.start.as<int64_t>();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t* rows = a.list.as<int64_t>() + start[i];
      const int64_t n = start[i + 1] - start[i];
      T* y = a.y.as<T>() + i * a.cols;
      if (n == 0) {
        std::fill(y, y + a.cols, T{0});
        continue;
      }
      const T* x = a.x.as<T>();
      column_sums<T>(
          n, kColumnLeaf, 0, a.cols,
          [&](V acc, int64_t k, int64_t c, int64_t count) { return acc + V::load(x + rows[k] * a.cols + c, count); },
          [&](V sum, int64_t c, int64_t count) { sum.store(y + c, count); });
    }
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

namespace elinvar {

HWY_EXPORT(sums_of_listed_rows);

void embedding(CpuStream& stream, const EmbeddingArgs& a) {
  const int64_t bytes = a.cols * size_of(a.table.dtype);
  const int64_t* index = a.index.as<int64_t>();
  stream.parallel_for(a.picks, 32768 / (a.cols + 1) + 1, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      char* y = a.y.as<char>() + i * bytes;
      if (index[i] < a.rows) std::memcpy(y, a.table.as<char>() + index[i] * bytes, static_cast<size_t>(bytes));
      else std::memset(y, 0, static_cast<size_t>(bytes));
    }
  });
}

void sum_listed_rows(CpuStream& stream, const ListedRowsArgs& a) {
  // Threads share work, not rows of the result: row i has a weight of one plus the terms of its sum, and belongs to the
  // interval of weights in which it starts.
  const int64_t* start = a.start.as<int64_t>();
  const auto first_row = [&](int64_t weight) {
    int64_t low = 0, high = a.rows;
    while (low < high) {
      const int64_t i = (low + high) / 2;
      if (start[i] + i < weight) low = i + 1;
      else high = i;
    }
    return low;
  };
  stream.parallel_for(a.rows + a.picks, 16384 / (a.cols + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(sums_of_listed_rows, a.x.dtype)(a, first_row(b), first_row(e));
  });
}

void put_rows(CpuStream& stream, const PutRowsArgs& a) {
  const int64_t bytes = a.cols * size_of(a.table.dtype);
  const int64_t* index = a.index.as<int64_t>();
  stream.parallel_for(a.picks, 32768 / (a.cols + 1) + 1, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i)
      std::memcpy(a.table.as<char>() + index[i] * bytes, a.rows.as<char>() + i * bytes, static_cast<size_t>(bytes));
  });
}

namespace {

void check_table(const Tensor& table) {
  check_float("embedding", table);
  check(table.ndim() == 2, "[embedding] the table must be (rows, columns), its shape is {}", to_string(table.shape()));
}

// Looks up checked indices, of which those outside the table equal its rows.
Tensor rows_at(const Tensor& input, const Tensor& checked, Shape shape) {
  const Tensor table = input.to_contiguous(), picks = checked.to(table.device());
  shape.push_back(table.dim(1));
  Tensor y = Tensor::empty(shape, table.dtype(), table.device());
  on(table.device(), [&](auto& stream) {
    embedding(stream, EmbeddingArgs{in(table), in(picks), out(y), picks.numel(), table.dim(0), table.dim(1)});
  });
  return y;
}

Tensor embedding_of(const Tensor& table, const Tensor& index) {
  check_table(table);
  return rows_at(table, checked_index("embedding", index, table.dim(0)), index.shape());
}

Tensor embedding_shard_of(const Tensor& table, const Tensor& index, const IndexShard& shard) {
  check_table(table);
  check(table.dim(0) == shard.count, "[embedding] a shard of {} rows has a table of shape {}", shard.count,
        to_string(table.shape()));
  return rows_at(table, shard_index("embedding", index, shard), index.shape());
}

// Adds up rows of `gradient`, in the order of their positions in `index`.
Tensor gradient_of_rows(const Tensor& gradient, const Tensor& index, const Occurrences& all, int64_t rows) {
  const Tensor dy = gradient.to_contiguous();
  const Occurrences found = all.to(dy.device());
  const int64_t cols = dy.dim(-1), picks = index.numel();
  check(dy.numel() == picks * cols, "[embedding_backward] a gradient of shape {} does not fit indices of shape {}",
        to_string(dy.shape()), to_string(index.shape()));
  Tensor dtable = Tensor::empty({rows, cols}, dy.dtype(), dy.device());
  on(dy.device(), [&](auto& stream) {
    sum_listed_rows(stream, ListedRowsArgs{in(dy), in(found.order), in(found.start), out(dtable), picks, rows, cols});
  });
  return dtable;
}

Tensor embedding_backward_of(const Tensor& dy, const Tensor& index, int64_t rows) {
  check_float("embedding_backward", dy);
  return gradient_of_rows(dy, index, occurrences(checked_index("embedding_backward", index, rows), rows), rows);
}

// Positions in other shards are the occurrences of one more row, which is not computed.
Tensor embedding_shard_backward_of(const Tensor& dy, const Tensor& index, const IndexShard& shard) {
  check_float("embedding_backward", dy);
  const Tensor relative = shard_index("embedding_backward", index, shard);
  return gradient_of_rows(dy, index, occurrences(relative, shard.count + 1), shard.count);
}

void put_rows_of(const Tensor& rows, const Tensor& index, Tensor& table) {
  check_table(table);
  check(table.contiguous() && rows.ndim() == 2 && index.ndim() == 1 && rows.dim(0) == index.dim(0) &&
            rows.dim(1) == table.dim(1) && rows.dtype() == table.dtype() && rows.device() == table.device(),
        "[put_rows] rows {} of shape {} and an index of shape {} do not fit a table {} of shape {}",
        name_of(rows.dtype()), to_string(rows.shape()), to_string(index.shape()), name_of(table.dtype()),
        to_string(table.shape()));
  const Tensor checked = checked_index("put_rows", index, table.dim(0)), from = rows.to_contiguous();
  const auto places = checked.span<int64_t>();
  for (size_t i = 1; i < places.size(); ++i)
    check(places[i - 1] < places[i], "[put_rows] the index must ascend, but has {} after {} at position {}", places[i],
          places[i - 1], i);
  const Tensor there = checked.to(table.device());
  on(table.device(), [&](auto& stream) {
    put_rows(stream, PutRowsArgs{in(from), in(there), out(table), there.numel(), table.dim(1)});
  });
}

const Op kEmbedding("embedding(table, index) -> y", embedding_of);
const Op kEmbeddingBackward("embedding_backward(dy, index, rows) -> dtable", embedding_backward_of);
const Op kEmbeddingShard("embedding_shard(table, index, shard) -> y", embedding_shard_of);
const Op kEmbeddingShardBackward("embedding_shard_backward(dy, index, shard) -> dtable", embedding_shard_backward_of);
const Op kPutRows("put_rows(rows, index, table)", put_rows_of);

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& index) { return kEmbedding(table, index); }

Tensor embedding_backward(const Tensor& dy, const Tensor& index, int64_t rows) {
  return kEmbeddingBackward(dy, index, rows);
}

Tensor embedding_shard(const Tensor& table, const Tensor& index, const IndexShard& shard) {
  return kEmbeddingShard(table, index, shard);
}

Tensor embedding_shard_backward(const Tensor& dy, const Tensor& index, const IndexShard& shard) {
  return kEmbeddingShardBackward(dy, index, shard);
}

void put_rows(const Tensor& rows, const Tensor& index, Tensor& table) { kPutRows(rows, index, table); }

}  // namespace elinvar
#endif
