#include "tensor/shard_group.h"

#include <utility>

#include "tensor/reduction_tree.h"

namespace elinvar {
namespace {

class LocalShards : public ShardGroup {
 public:
  ShardRange own(int count) const override { return {0, count}; }
  Tensor sum(std::vector<Tensor> values, int) override { return tree_sum(std::move(values)); }
  std::vector<Tensor> gather(std::vector<Tensor> values, const std::vector<Shape>&) override { return values; }
};

}  // namespace

Tensor PartialShards::sum(std::vector<Tensor> values, int) { return tree_sum(std::move(values)); }

std::vector<Tensor> PartialShards::gather(std::vector<Tensor> values, const std::vector<Shape>& shapes) {
  const DType type = values.at(0).dtype();
  const Device device = values[0].device();
  std::vector<Tensor> all;
  for (int s = 0; s < static_cast<int>(shapes.size()); ++s) {
    const bool own = own_.begin <= s && s < own_.end;
    all.push_back(own ? std::move(values[static_cast<size_t>(s - own_.begin)])
                      : Tensor::zeros(shapes[static_cast<size_t>(s)], type, device));
  }
  return all;
}

ShardGroup& local_shards() {
  static LocalShards group;
  return group;
}

}  // namespace elinvar
