#include "autograd/shards.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/ops/concat.h"

namespace elinvar {
namespace {

// Returns how many shards are computed here.
int own_count(const Shards& shards) {
  const int own = shards.own().size();
  check(own > 0, "[shards] a group must compute at least one of {} shards here", shards.count);
  return own;
}

void check_values(size_t values, const Shards& shards) {
  const int own = own_count(shards);
  check(static_cast<int>(values) == own, "[shards] {} values expected, got {}", own, values);
}

// Sums are float32; the sum of bfloat16 values is rounded once.
Tensor sum_of_shards(std::vector<Tensor> values, const Shards& shards) {
  const DType type = values.at(0).dtype();
  if (type == DType::bf16)
    for (Tensor& value : values) value = value.to(DType::f32);
  return shards.group->sum(std::move(values), shards.count).to(type);
}

}  // namespace

// The copies' gradients are kept, and summed when the sweep reaches the node between them and x. For that node one of
// them counts as its gradient.
std::vector<Var> copy_to_shards(const Var& x, const Shards& shards) {
  if (shards.count == 1) return {x};
  const auto size = static_cast<size_t>(own_count(shards));
  const auto gradients = std::make_shared<std::vector<Tensor>>(size);
  const Var source = record(x.value(), {x}, [gradients, shards](Tensor any) {
    std::vector<Tensor> all = std::move(*gradients);
    for (Tensor& gradient : all)
      if (!gradient.defined()) gradient = Tensor::zeros(any.shape(), any.dtype(), any.device());
    any = {};  // the sum may be made in place
    return std::vector<Tensor>{sum_of_shards(std::move(all), shards)};
  });
  std::vector<Var> copies;
  for (size_t i = 0; i < size; ++i) {
    copies.push_back(record(x.value(), {source}, [gradients, i](const Tensor& dy) {
      const bool first = std::ranges::none_of(*gradients, &Tensor::defined);
      (*gradients)[i] = dy;
      return std::vector<Tensor>{first ? dy : Tensor{}};
    }));
    copies.back().share_rounded(source);
  }
  return copies;
}

Var reduce_from_shards(std::vector<Var> values, const Shards& shards) {
  check_values(values.size(), shards);
  if (shards.count == 1) return values[0];
  std::vector<Tensor> parts;
  for (Var& value : values) {
    parts.push_back(value.value());
    value = Var(value.node());  // without the tensor, so that the sum may be made in place
  }
  const size_t size = values.size();
  return record(sum_of_shards(std::move(parts), shards), std::move(values),
                [size](const Tensor& dy) { return std::vector<Tensor>(size, dy); });
}

Var gather_from_shards(const std::vector<Var>& values, int dim, const std::vector<int64_t>& extents,
                       const Shards& shards) {
  check_values(values.size(), shards);
  if (shards.count == 1) return values[0];
  check(static_cast<int>(extents.size()) == shards.count, "[shards] extents of {} shards expected, got {}",
        shards.count, extents.size());
  const auto first = static_cast<size_t>(shards.own().begin);
  const int axis = normalize_dim(dim, values[0].shape().ndim(), "shards");
  std::vector<Shape> shapes;
  for (const int64_t extent : extents) {
    Shape shape = values[0].shape();
    shape[axis] = extent;
    shapes.push_back(shape);
  }
  std::vector<Tensor> parts;
  for (size_t i = 0; i < values.size(); ++i) {
    check(values[i].shape() == shapes[first + i], "[shards] shard {} has shape {}, expected {}", first + i,
          to_string(values[i].shape()), to_string(shapes[first + i]));
    parts.push_back(values[i].value());
  }
  parts = shards.group->gather(std::move(parts), shapes);
  const int64_t begin = std::accumulate(extents.begin(), extents.begin() + shards.own().begin, int64_t{0});
  const std::vector<int64_t> own(extents.begin() + shards.own().begin, extents.begin() + shards.own().end);
  return record(concat(parts, dim), values, [begin, own, dim](const Tensor& dy) {
    std::vector<Tensor> grads;
    for (int64_t at = begin; const int64_t extent : own) {
      grads.push_back(dy.slice(dim, at, at + extent));
      at += extent;
    }
    return grads;
  });
}

}  // namespace elinvar
