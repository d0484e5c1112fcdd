#include "elastic/protocol/model_replica.h"

#include <iterator>

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

const std::vector<int>& ModelReplica::members() const {
  static const std::vector<int> kNone;
  const Tables& t = tables();
  return t.replicas.empty() ? kNone : t.replicas[static_cast<size_t>(place().replica)];
}

const ModelReplica::Tables& ModelReplica::tables() const {
  if (tables_.number == position_.number()) return tables_;
  tables_ = {.number = position_.number()};
  if (!position_.active() || position_.generation->shards == 0) return tables_;
  for (int m = 0; m < position_.members(); ++m) {
    const auto replica = static_cast<size_t>(place_of(m).replica);
    tables_.replicas.resize(std::max(tables_.replicas.size(), replica + 1));
    tables_.replicas[replica].push_back(m);
  }
  std::vector<std::vector<Interval>> segments;
  for (const int m : tables_.replicas[static_cast<size_t>(place().replica)]) {
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
  return tables_;
}

// Returns those of the members who compute a part.
std::vector<int> ModelReplica::having(const std::vector<int>& members, const NetworkPart& part) const {
  std::vector<int> having;
  std::ranges::copy_if(members, std::back_inserter(having), [&](int m) { return has(place_of(m), part); });
  return having;
}

const Contributions& ModelReplica::contributions(const Buckets& buckets) const {
  static_cast<void>(tables());
  const auto [found, fresh] = tables_.contributions.try_emplace(&buckets);
  if (fresh) found->second = deal(buckets);
  return found->second;
}

Contributions ModelReplica::deal(const Buckets& buckets) const {
  Contributions all{.members = position_.members(), .me = position_.index};
  const std::vector<std::vector<int>>& replicas = tables().replicas;
  if (replicas.empty()) return all;
  for (int m = 0; m < all.members; ++m) all.replicas.push_back(place_of(m).replica);
  all.tensors.resize(buckets.shapes().size());
  std::map<NetworkPart, size_t> turns;  // the number of buckets of each part so far; one for all that is not cut
  for (int b = 0; b < buckets.count(); ++b) {
    const NetworkPart part = layout_.part(buckets.slices(b)[0].tensor);
    const size_t turn = turns[part.shard < 0 ? NetworkPart{} : part]++;
    // Members that have the same tensors contribute in turn, and so do replicas as owners.
    std::vector<int>& contributors = all.of_buckets.emplace_back();
    for (const std::vector<int>& replica : replicas) {
      const std::vector<int> able = having(replica, part);
      contributors.push_back(able[turn / replicas.size() % able.size()]);
    }
    all.owners.push_back(contributors[turn % replicas.size()]);
    all.absent_buckets += !elinvar::has(place(), part);
    for (const Slice& slice : buckets.slices(b))
      if (all.contributes(b)) all.tensors[static_cast<size_t>(slice.tensor)] = true;
  }
  return all;
}

bool Contributions::contributes(int member, int bucket) const {
  if (of_buckets.empty()) return true;
  const int replica = replicas[static_cast<size_t>(member)];
  return of_buckets[static_cast<size_t>(bucket)][static_cast<size_t>(replica)] == member;
}

int Contributions::owner(int bucket) const {
  return owners.empty() ? bucket % members : owners[static_cast<size_t>(bucket)];
}

}  // namespace elinvar
