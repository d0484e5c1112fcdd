#pragma once
// Changes shapes, and joins and selects parts.
#include "autograd/var.h"
#include "tensor/ops/embedding_bag.h"
#include "tensor/ops/index.h"

namespace elinvar {

Var reshape(const Var& x, const Shape& shape);  // one extent may be -1
Var permute(const Var& x, std::vector<int> dims);
Var transpose(const Var& x, int a, int b);
Var slice(const Var& x, int dim, int64_t begin, int64_t end, int64_t step = 1);
// Splits x along `dim` into consecutive parts, whose `extents` must add up to x's extent. This is cheaper than slices,
// because the gradients of all parts are written once, into one tensor.
std::vector<Var> split(const Var& x, std::vector<int64_t> extents, int dim);
Var expand(const Var& x, const Shape& shape);
Var concat(std::vector<Var> parts, int dim);
// Pads with zeros (or `value`): before[i] and after[i] elements in dimension i.
Var pad(const Var& x, std::vector<int64_t> before, std::vector<int64_t> after, double value = 0.0);
// y[.., i, ..] = x[.., index[.., i, ..], ..] along `dim`; index (int32 or int64) has the result's shape.
Var gather(const Var& x, int dim, const Tensor& index);
// Returns the rows of `table` (V, C) at `index` (any shape): (index shape.., C). The gradient follows NUMERICS.md, rule
// 16.
Var embedding(const Var& table, const Tensor& index);
// The same for a table that is one shard of the rows: rows of other shards are zeros.
Var embedding(const Var& table, const Tensor& index, const IndexShard& shard);
// The same for a table of which `values` (N, C) is a copy of some rows, and whose gradient is that of these rows
// (Var::grad_shape): returns the values at `place`.
Var embedding(const Var& table, const Tensor& values, const Tensor& place);
// The values of bags of ids (tensor/ops/embedding_bag.h), and the same for such copies of rows.
Var embedding_bag(const Var& table, const Tensor& index, const Bags& bags);
Var embedding_bag(const Var& table, const Tensor& values, const Tensor& place, const Bags& bags);

}  // namespace elinvar
