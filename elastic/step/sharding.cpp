#include "elastic/step/sharding.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

// SplitMix64 (G. Steele et al., "Fast splittable pseudorandom number generators", 2014).
uint64_t hash_of(uint64_t bucket, uint64_t id) {
  uint64_t x = (bucket + 1) * 0x9e3779b97f4a7c15 + id * 0xd1342543de82ef95;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

int most_of(int things, size_t workers) {
  return static_cast<int>((static_cast<size_t>(things) + workers - 1) / workers);
}

}  // namespace

std::vector<std::vector<int>> keepers_of(const BucketDeal& deal, int buckets) {
  const size_t workers = deal.ids.size();
  check(workers > 0 && deal.copies >= 1, "[sharding] {} workers and {} copies", workers, deal.copies);
  const int copies = std::min(deal.copies, static_cast<int>(workers));
  const int most_owned = most_of(buckets, workers), most_kept = most_of(buckets * copies, workers);
  std::vector<int> owned(workers, 0), kept(workers, 0);
  std::vector<std::vector<int>> keepers(static_cast<size_t>(buckets));
  std::vector<std::pair<uint64_t, size_t>> order(workers);
  for (int b = 0; b < buckets; ++b) {
    for (size_t w = 0; w < workers; ++w)
      order[w] = {hash_of(static_cast<uint64_t>(b), static_cast<uint64_t>(deal.ids[w])), w};
    std::sort(order.begin(), order.end());
    std::vector<size_t> chosen;
    const auto choose = [&](const std::vector<int>& load, int most) {
      const auto free = [&](size_t w) { return std::find(chosen.begin(), chosen.end(), w) == chosen.end(); };
      size_t best = workers;  // the preferred worker with room, or else the one with the least load
      for (const auto& [hash, w] : order) {
        if (!free(w)) continue;
        if (load[w] < most) return w;
        if (best == workers || load[w] < load[best]) best = w;
      }
      return best;
    };
    for (int c = 0; c < copies; ++c) {
      const size_t w = c == 0 ? choose(owned, most_owned) : choose(kept, most_kept);
      owned[w] += c == 0;
      ++kept[w];
      chosen.push_back(w);
      keepers[static_cast<size_t>(b)].push_back(deal.ids[w]);
    }
  }
  return keepers;
}

std::vector<int> providers_of(const Sharding& sharding, int buckets, const std::vector<int>& members) {
  const auto here = [&](int id) { return std::find(members.begin(), members.end(), id) != members.end(); };
  std::vector<int> providers(static_cast<size_t>(buckets), 0);
  if (sharding.whole) {
    std::vector<int> left;
    std::copy_if(sharding.holders.ids.begin(), sharding.holders.ids.end(), std::back_inserter(left), here);
    for (size_t b = 0; b < providers.size() && !left.empty(); ++b) providers[b] = left[b % left.size()];
    return providers;
  }
  if (sharding.holders.ids.empty()) return providers;
  const std::vector<std::vector<int>> holders = keepers_of(sharding.holders, buckets);
  for (size_t b = 0; b < providers.size(); ++b)
    if (const auto found = std::find_if(holders[b].begin(), holders[b].end(), here); found != holders[b].end())
      providers[b] = *found;
  return providers;
}

}  // namespace elinvar
