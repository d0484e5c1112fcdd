#include "elastic/protocol/model_replica.h"

#include <algorithm>

namespace elinvar {

int ModelReplica::number() const {
  return position_.generation->members[static_cast<size_t>(position_.index)].place.replica;
}

Interval ModelReplica::shards() const {
  return position_.generation->members[static_cast<size_t>(position_.index)].place.shards;
}

bool ModelReplica::reports() const { return !divided() || members().front() == position_.index; }

bool ModelReplica::contributes(int bucket) const {
  return !divided() || tables().contributed[static_cast<size_t>(bucket)];
}

bool ModelReplica::contributes_to(int tensor) const {
  return !divided() || tables().needed[static_cast<size_t>(tensor)];
}

size_t ModelReplica::absent_tensors() const {
  return divided() ? static_cast<size_t>(std::ranges::count(tables().needed, false)) : 0;
}

int ModelReplica::absent_buckets() const { return divided() ? tables().absent : 0; }

const ModelReplica::Tables& ModelReplica::tables() const {
  if (tables_.number == position_.number() && tables_.buckets == layout_.bucket_count()) return tables_;
  tables_ = {.number = position_.number(), .buckets = layout_.bucket_count()};
  if (!position_.active() || position_.generation->shards == 0) return tables_;
  const std::vector<GenerationMember>& members = position_.generation->members;
  for (int m = 0; m < position_.members(); ++m)
    if (members[static_cast<size_t>(m)].place.replica == number()) tables_.indexes.push_back(m);
  if (!layout_.known()) return tables_;
  const Buckets& buckets = *layout_.buckets();
  tables_.needed.resize(buckets.shapes().size());
  int uncut = 0;  // buckets of what is not cut, which the members take in turn
  for (int b = 0; b < buckets.count(); ++b) {
    const int shard = layout_.virtual_shard(buckets.slices(b)[0].tensor);
    const auto size = static_cast<int>(tables_.indexes.size());
    const bool own = shard >= 0 ? shards().begin <= shard && shard < shards().end
                                : tables_.indexes[static_cast<size_t>(uncut++ % size)] == position_.index;
    tables_.contributed.push_back(own);
    tables_.absent += shard >= 0 && !own;
    for (const Slice& slice : buckets.slices(b))
      if (own) tables_.needed[static_cast<size_t>(slice.tensor)] = true;
  }
  return tables_;
}

}  // namespace elinvar
