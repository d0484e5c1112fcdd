#include "elastic/protocol/model_replica.h"

#include <algorithm>
#include <map>

namespace elinvar {

const ReplicaPlace& ModelReplica::place_of(int member) const {
  return position_.generation->members[static_cast<size_t>(member)].place;
}

int ModelReplica::number() const { return place_of(position_.index).replica; }

Interval ModelReplica::shards() const { return place_of(position_.index).shards; }

bool ModelReplica::reports() const { return !divided() || members().front() == position_.index; }

bool ModelReplica::contributes(int bucket) const {
  return !divided() || tables().contributed[static_cast<size_t>(bucket)];
}

int ModelReplica::owner(int bucket) const {
  const std::vector<int>& owners = tables().owners;
  return owners.empty() ? bucket % position_.members() : owners[static_cast<size_t>(bucket)];
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
  std::vector<std::vector<int>> replicas;
  for (int m = 0; m < position_.members(); ++m) {
    const auto replica = static_cast<size_t>(place_of(m).replica);
    replicas.resize(std::max(replicas.size(), replica + 1));
    replicas[replica].push_back(m);
  }
  const auto own = static_cast<size_t>(number());
  tables_.indexes = replicas[own];
  if (!layout_.known()) return tables_;
  const Buckets& buckets = *layout_.buckets();
  tables_.needed.resize(buckets.shapes().size());
  std::map<int, size_t> turns;  // buckets of each shard so far, and (-1) of what is not cut
  for (int b = 0; b < buckets.count(); ++b) {
    const int shard = layout_.virtual_shard(buckets.slices(b)[0].tensor);
    const size_t turn = turns[shard]++;
    // The members of a replica take what is not cut in turn, and so do replicas as owners.
    const auto contributor = [&](const std::vector<int>& replica) {
      if (shard < 0) return replica[turn / replicas.size() % replica.size()];
      return *std::ranges::find_if(replica, [&](int m) { return shard < place_of(m).shards.end; });
    };
    const bool contributes = contributor(replicas[own]) == position_.index;
    tables_.contributed.push_back(contributes);
    tables_.owners.push_back(contributor(replicas[turn % replicas.size()]));
    tables_.absent += shard >= 0 && !contributes;
    for (const Slice& slice : buckets.slices(b))
      if (contributes) tables_.needed[static_cast<size_t>(slice.tensor)] = true;
  }
  return tables_;
}

}  // namespace elinvar
