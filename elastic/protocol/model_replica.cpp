#include "elastic/protocol/model_replica.h"

#include <algorithm>
#include <map>

namespace elinvar {
namespace {

bool has(const ReplicaPlace& place, const NetworkPart& part) {
  const bool segment = place.segments.empty() || contains(place.segments, part.segment);
  return segment && (part.shard < 0 || contains({&place.shards, 1}, part.shard));
}

}  // namespace

const ReplicaPlace& ModelReplica::place_of(int member) const {
  return position_.generation->members[static_cast<size_t>(member)].place;
}

std::vector<PipelinePass> ModelReplica::passes(const std::vector<int>& vranks) const {
  const Tables& t = tables();
  auto order = pipeline_order(t.runs, static_cast<int>(t.stages.size()), vranks);
  return std::move(order[static_cast<size_t>(place().stage)]);
}

std::vector<int> ModelReplica::tensors_of(int member) const {
  std::vector<int> tensors;
  for (int t = 0; t < static_cast<int>(layout_.buckets()->shapes().size()); ++t)
    if (has(place_of(member), layout_.part(t))) tensors.push_back(t);
  return tensors;
}

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
  tables_.indexes = replicas[static_cast<size_t>(place_of(position_.index).replica)];
  std::vector<std::vector<Interval>> segments;
  for (const int m : tables_.indexes) {
    const auto stage = static_cast<size_t>(place_of(m).stage);
    if (stage == tables_.stages.size()) {
      tables_.stages.emplace_back();
      segments.push_back(place_of(m).segments);
    }
    tables_.stages[stage].push_back(m);
  }
  if (tables_.stages.size() > 1) tables_.runs = runs_of(segments);
  const int last = tables_.runs.empty() ? 0 : tables_.runs.back().stage;
  tables_.reporter = tables_.stages[static_cast<size_t>(last)].front();
  if (layout_.known()) deal_buckets(replicas);
  return tables_;
}

// Returns those of the members who compute a part.
std::vector<int> ModelReplica::having(const std::vector<int>& members, const NetworkPart& part) const {
  std::vector<int> having;
  std::ranges::copy_if(members, std::back_inserter(having), [&](int m) { return has(place_of(m), part); });
  return having;
}

void ModelReplica::deal_buckets(const std::vector<std::vector<int>>& replicas) const {
  const Buckets& buckets = *layout_.buckets();
  tables_.needed.resize(buckets.shapes().size());
  std::map<NetworkPart, size_t> turns;  // the number of buckets of each part so far; one for all that is not cut
  for (int b = 0; b < buckets.count(); ++b) {
    const NetworkPart part = layout_.part(buckets.slices(b)[0].tensor);
    const size_t turn = turns[part.shard < 0 ? NetworkPart{} : part]++;
    // Members that have the same tensors contribute in turn, and so do replicas as owners.
    const auto contributor = [&](const std::vector<int>& replica) {
      const std::vector<int> able = having(replica, part);
      return able[turn / replicas.size() % able.size()];
    };
    const bool contributes = contributor(tables_.indexes) == position_.index;
    tables_.contributed.push_back(contributes);
    tables_.owners.push_back(contributor(replicas[turn % replicas.size()]));
    tables_.absent += !has(place(), part);
    for (const Slice& slice : buckets.slices(b))
      if (contributes) tables_.needed[static_cast<size_t>(slice.tensor)] = true;
  }
}

}  // namespace elinvar
