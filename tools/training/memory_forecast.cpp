#include "tools/training/memory_forecast.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "elastic/protocol/member.h"
#include "elastic/step/sharding.h"
#include "tensor/state_slice.h"

namespace elinvar {
namespace {

constexpr int64_t kFloat = sizeof(float);

// Returns the bytes of the parameters in the buckets that each worker keeps, and of those that it owns.
struct Shares {
  std::vector<int64_t> kept, owned;
};
Shares shares_of(const MemoryNeeds& needs, const BucketDeal& deal) {
  const GradientLayout layout(MemberOptions().bucket_elements,
                              ShardOptions{.multiple = kChunkElements, .parameters = needs.parameters}, needs.parts);
  Shares shares{.kept = std::vector<int64_t>(deal.ids.size(), 0), .owned = std::vector<int64_t>(deal.ids.size(), 0)};
  const std::vector<std::vector<int>> keepers = keepers_of(deal, layout.shards());
  for (int b = 0; b < layout.shards(); ++b) {
    int64_t bytes = 0;
    for (const Slice& slice : layout.shard_buckets().slices(b)) bytes += slice.numel() * kFloat;
    const std::vector<int>& ids = keepers[static_cast<size_t>(b)];
    for (const int id : ids) shares.kept[static_cast<size_t>(id - 1)] += bytes;
    shares.owned[static_cast<size_t>(ids[0] - 1)] += bytes;
  }
  return shares;
}

// Returns the bytes of the gradients that a member of a model replica contributes, if its stage has so many members.
int64_t contributed_bytes(const MemoryNeeds& needs, const ReplicaPlace& place, int members) {
  int64_t own = 0, uncut = 0;
  for (size_t i = 0; i < needs.parameters.size(); ++i) {
    const int64_t bytes = needs.parameters[i].numel() * kFloat;
    const NetworkPart part = needs.parts ? needs.parts->gradients[i] : NetworkPart{};
    if (!place.segments.empty() && !contains(place.segments, part.segment)) continue;
    if (part.shard < 0) uncut += bytes;
    else if (contains({&place.shards, 1}, part.shard)) own += bytes;
  }
  return own + uncut / members;
}

// Returns the bytes of the parameters of a segment, at most, that the member computes.
int64_t largest_segment(const MemoryNeeds& needs, const ReplicaPlace& place) {
  std::map<int, int64_t> bytes;
  for (size_t i = 0; i < needs.parameters.size(); ++i) {
    const NetworkPart part = needs.parts ? needs.parts->gradients[i] : NetworkPart{};
    if (!place.segments.empty() && !contains(place.segments, part.segment)) continue;
    bytes[part.segment] += needs.parameters[i].numel() * kFloat;
  }
  int64_t most = 0;
  for (const auto& [segment, all] : bytes) most = std::max(most, all);
  return most;
}

// Returns the most sums of a bucket that its owner has at a time. Replicas compute alternating rank gradients; there
// are the subtrees of those before, and another one comes before they are added up.
int64_t waiting_sums(int ranks, int replicas) {
  int most = 0;
  for (int before = 0; before < ranks; before += replicas)
    most = std::max(most, std::popcount(static_cast<unsigned>(before)));
  return most + 1;
}

}  // namespace

std::vector<MemoryForecast> forecast_memory(const MemoryNeeds& needs, const Arrangement& arrangement,
                                            const std::vector<WorkerLoad>& workers) {
  int64_t all = 0;
  for (const Shape& shape : needs.parameters) all += shape.numel() * kFloat;
  const auto count = static_cast<int64_t>(workers.size());
  const bool alone = count == 1, sharded = arrangement.zero > 0;
  BucketDeal deal{.ids = std::vector<int>(workers.size()), .copies = arrangement.copies};
  std::iota(deal.ids.begin(), deal.ids.end(), 1);
  const Shares shares = sharded ? shares_of(needs, deal) : Shares{};
  int all_ranks = 0;
  std::vector<int> size(workers.size(), 0);  // of each replica
  for (const WorkerLoad& worker : workers) {
    int& members = size[static_cast<size_t>(worker.place.replica)];
    if (members++ == 0) all_ranks += worker.virtual_ranks;
  }
  const int replicas = static_cast<int>(size.size() - std::ranges::count(size, 0));
  std::vector<MemoryForecast> forecasts;
  for (size_t w = 0; w < workers.size(); ++w) {
    const WorkerLoad& worker = workers[w];
    const int64_t kept = sharded ? shares.kept[w] : all, owned = sharded ? shares.owned[w] : all / count;
    const bool whole = arrangement.zero < 3;  // otherwise those of segments in use are part of a rank gradient's bytes
    MemoryForecast forecast{.parameters = whole ? all : kept,
                            .optimizer = needs.slots * kept,
                            .average = needs.average ? kept : 0,
                            .snapshot = ((whole ? all : 0) + needs.other_state) / count +
                                        (needs.slots + (needs.average ? 1 : 0) + (whole ? 0 : 1)) * owned};
    if (needs.offload.to == Offload::To::file) forecast.offloaded = forecast.optimizer;
    const int64_t state = forecast.parameters + forecast.optimizer - forecast.offloaded + forecast.average +
                          needs.other_state + needs.process;
    // Sums of earlier rank gradients, of which there are as many as levels of the tree below the last one; and, without
    // ZeRO, the result of the step before, for members that may lack it. Members of a model replica have those that
    // they contribute.
    const int members = size[static_cast<size_t>(worker.place.replica)];
    const auto of_stage = std::ranges::count_if(workers, [&](const WorkerLoad& other) {
      return other.place.replica == worker.place.replica && other.place.stage == worker.place.stage;
    });
    const int64_t contributed = members == 1 ? all : contributed_bytes(needs, worker.place, static_cast<int>(of_stage));
    const auto ranks = static_cast<unsigned>(std::max(worker.virtual_ranks, 1));
    // With its second stage a rank gradient leaves as it is made, and owners add up those of all.
    const bool leaves = arrangement.zero >= 2 && !alone;
    const int64_t earlier = leaves ? 0 : (std::bit_width(ranks) - 1) * contributed;
    const int64_t before = alone || sharded ? 0 : all;
    // Buckets are exchanged while the backward pass runs: sums of others for this worker's buckets, and the results;
    // or, if rank gradients leave as they are made, sums that wait for the next ones, and results of other owners.
    // Without ZeRO an owner is itself the one that contributes in its replica.
    const int64_t from_others = sharded ? std::min<int64_t>(count - 1, replicas) : replicas - 1;
    int64_t exchanged = alone    ? 0
                        : leaves ? owned * waiting_sums(all_ranks, replicas) + kept - owned
                                 : owned * from_others + kept;
    // With ZeRO a member of a model replica frees what it has contributed. So with the sums of earlier rank gradients,
    // at the beginning of the last backward pass, there are only results of buckets to which other members contribute.
    const bool frees = members > 1 && !leaves && sharded;
    if (frees) exchanged = std::max(exchanged - earlier, kept * (all - contributed) / std::max<int64_t>(all, 1));
    // Libraries have messages in memory of their own: a rank gradient's contributions of other stages, and with ZeRO-3
    // parameters.
    const int64_t messages =
        (leaves && !worker.place.segments.empty() ? owned : 0) +
        (whole ? 0 : largest_segment(needs, worker.place) * (all - kept) / std::max<int64_t>(all, 1));
    const int64_t computed = worker.virtual_ranks > 0 ? earlier + worker.rank_gradient : 0;
    forecast.peak = state + before + computed + exchanged + messages + (needs.checkpoints ? forecast.snapshot : 0);
    forecast.peak += static_cast<int64_t>(needs.spare * static_cast<double>(forecast.peak));
    forecasts.push_back(forecast);
  }
  return forecasts;
}

}  // namespace elinvar
