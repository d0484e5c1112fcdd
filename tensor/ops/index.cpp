#include "tensor/ops/index.h"

#include "tensor/graph.h"
#include "tensor/op_check.h"

namespace elinvar {
namespace {

Tensor checked(const char* op, const Tensor& index, int64_t limit, std::optional<int64_t> ignored) {
  check(index.dtype() == DType::i32 || index.dtype() == DType::i64, "[{}] indices must be int32 or int64, got {}", op,
        name_of(index.dtype()));
  Tensor checked = index.to(Device{}).to(DType::i64).to_contiguous();
  const int64_t* v = checked.data<int64_t>();
  for (int64_t i = 0; i < checked.numel(); ++i) {
    if ((v[i] >= 0 && v[i] < limit) || v[i] == ignored) continue;
    check(false, "[{}] index {} at position {} of shape {} is outside [0, {})", op, v[i], i, to_string(index.shape()),
          limit);
  }
  return checked;
}

Tensor relative(const char* op, const Tensor& index, const IndexShard& shard) {
  const Tensor positions = checked(op, index, shard.whole, {});
  Tensor result = Tensor::empty(positions.shape(), DType::i64);
  for (int64_t i = 0; i < positions.numel(); ++i) {
    const int64_t at = positions.data<int64_t>()[i] - shard.first;
    result.data<int64_t>()[i] = at >= 0 && at < shard.count ? at : shard.count;
  }
  return result;
}

std::vector<Tensor> sorted(const Tensor& index, int64_t limit) {
  const int64_t n = index.numel();
  Occurrences found{Tensor::empty({n}, DType::i64), Tensor::zeros({limit + 1}, DType::i64)};
  const int64_t* v = index.data<int64_t>();
  int64_t* order = found.order.data<int64_t>();
  int64_t* start = found.start.data<int64_t>();
  // Counts, then ends; filling from the back turns the ends into starts.
  for (int64_t i = 0; i < n; ++i) ++start[v[i]];
  for (int64_t t = 1; t <= limit; ++t) start[t] += start[t - 1];
  for (int64_t i = n - 1; i >= 0; --i) order[--start[v[i]]] = i;
  return {found.order, found.start};
}

}  // namespace

Tensor checked_index(const char* op, const Tensor& index, int64_t limit, std::optional<int64_t> ignored) {
  return derived({index}, [=](auto from) { return std::vector{checked(op, from[0], limit, ignored)}; })[0];
}

Tensor shard_index(const char* op, const Tensor& index, const IndexShard& shard) {
  check(shard.first >= 0 && shard.count > 0 && shard.first + shard.count <= shard.whole,
        "[{}] rows [{}, {}) are no shard of {}", op, shard.first, shard.first + shard.count, shard.whole);
  return derived({index}, [=](auto from) { return std::vector{relative(op, from[0], shard)}; })[0];
}

Occurrences occurrences(const Tensor& index, int64_t limit) {
  const std::vector<Tensor> found = derived({index}, [=](auto from) { return sorted(from[0], limit); });
  return {found[0], found[1]};
}

}  // namespace elinvar
