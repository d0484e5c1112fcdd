#include "nn/cut.h"

#include <vector>

#include "tensor/base/check.h"
#include "tensor/ops/concat.h"

namespace elinvar {
namespace {

// Returns x with dimension `dim` as (groups, things, elements of a thing).
Tensor by_things(const Cut& cut, const Tensor& x, int64_t things) {
  Shape shape;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d != cut.dim) {
      shape.push_back(x.dim(d));
      continue;
    }
    shape.push_back(cut.groups), shape.push_back(things), shape.push_back(x.dim(d) / (cut.groups * things));
  }
  return x.reshape(shape);
}

}  // namespace

Shape Cut::shape_of(Shape whole, int shard) const {
  check(whole[dim] % (groups * things) == 0 && things >= shards,
        "[cut] dimension {} of shape {} cannot be cut into {} shards of {} times {} things", dim, to_string(whole),
        shards, groups, things);
  whole[dim] = whole[dim] / things * things_of(shard).count;
  return whole;
}

Tensor Cut::part_of(const Tensor& whole, int shard) const {
  const auto [first, count, all] = things_of(shard);
  return by_things(*this, whole, things)
      .slice(dim + 1, first, first + count)
      .to_contiguous()
      .reshape(shape_of(whole.shape(), shard));
}

Tensor Cut::joined(std::span<const Tensor> parts) const {
  check(static_cast<int>(parts.size()) == shards, "[cut] {} shards expected, got {}", shards, parts.size());
  std::vector<Tensor> divided;
  Shape shape = parts[0].shape();
  shape[dim] = 0;
  for (const Tensor& part : parts) {
    divided.push_back(by_things(*this, part, things_of(static_cast<int>(divided.size())).count));
    shape[dim] += part.dim(dim);
  }
  return concat(divided, dim + 1).reshape(shape);
}

}  // namespace elinvar
