#include "tools/training/memory_forecast.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "elastic/protocol/gradient_layout.h"
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
                              ShardOptions{.multiple = kChunkElements, .parameters = needs.parameters});
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

}  // namespace

std::vector<MemoryForecast> forecast_memory(const MemoryNeeds& needs, const Arrangement& arrangement,
                                            const std::vector<int>& virtual_ranks) {
  int64_t all = 0;
  for (const Shape& shape : needs.parameters) all += shape.numel() * kFloat;
  const auto workers = static_cast<int64_t>(virtual_ranks.size());
  const bool alone = workers == 1, sharded = arrangement.zero > 0;
  BucketDeal deal{.ids = std::vector<int>(virtual_ranks.size()), .copies = arrangement.copies};
  std::iota(deal.ids.begin(), deal.ids.end(), 1);
  const Shares shares = sharded ? shares_of(needs, deal) : Shares{};
  const int all_ranks = std::accumulate(virtual_ranks.begin(), virtual_ranks.end(), 0);
  std::vector<MemoryForecast> forecasts;
  for (size_t w = 0; w < virtual_ranks.size(); ++w) {
    const int64_t kept = sharded ? shares.kept[w] : all, owned = sharded ? shares.owned[w] : all / workers;
    MemoryForecast forecast{.parameters = all,
                            .optimizer = needs.slots * kept,
                            .snapshot = (all + needs.other_state) / workers + needs.slots * owned};
    const int64_t state = all + forecast.optimizer + needs.other_state + forecast.snapshot + needs.process;
    // Sums of earlier rank gradients, of which there are as many as levels of the tree below the last one; and, without
    // ZeRO, the result of the step before, for members that may lack it.
    const auto ranks = static_cast<unsigned>(std::max(virtual_ranks[w], 1));
    // With its second stage a rank gradient leaves as it is made, and owners add up those of all.
    const bool leaves = arrangement.zero >= 2 && !alone;
    const int64_t earlier = leaves ? 0 : (std::bit_width(ranks) - 1) * all;
    const int64_t before = alone || sharded ? 0 : all;
    // Buckets are exchanged while the backward pass runs: sums of others for this worker's buckets, and the results.
    const int64_t levels = std::bit_width(static_cast<unsigned>(std::max(all_ranks, 1)));
    const int64_t exchanged = alone ? 0 : owned * (leaves ? levels : workers - 1) + kept;
    const int64_t computed = virtual_ranks[w] > 0 ? earlier + needs.rank_gradient : 0;
    forecast.peak = state + before + computed + exchanged;
    forecasts.push_back(forecast);
  }
  return forecasts;
}

}  // namespace elinvar
