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

// The numbers of buckets of each worker, which are to be equal up to one when all are assigned.
class Loads {
 public:
  Loads(size_t workers, size_t buckets) : loads_(workers, 0), even_(buckets / workers), odd_(buckets % workers) {}

  bool has_room(size_t w) const { return loads_[w] < even_ || (loads_[w] == even_ && odd_ > 0); }
  void add(size_t w) { odd_ -= loads_[w]++ == even_ && odd_ > 0; }
  void move(size_t from, size_t to) { --loads_[from], ++loads_[to]; }
  size_t of(size_t w) const { return loads_[w]; }
  size_t most() const { return static_cast<size_t>(std::max_element(loads_.begin(), loads_.end()) - loads_.begin()); }
  size_t least() const { return static_cast<size_t>(std::min_element(loads_.begin(), loads_.end()) - loads_.begin()); }

 private:
  std::vector<size_t> loads_;
  size_t even_, odd_;  // every worker gets `even_`, and `odd_` workers may still get one more
};

using Workers = std::vector<size_t>;  // indexes in BucketDeal::ids

bool contains(const Workers& workers, size_t w) {
  return std::find(workers.begin(), workers.end(), w) != workers.end();
}

// Returns the first worker in the order of preference that is no keeper yet and has room, or else the one with the
// least load.
size_t choose(const Workers& preferred, const Workers& keepers, const Loads& loads) {
  size_t best = preferred.size();
  for (const size_t w : preferred) {
    if (contains(keepers, w)) continue;
    if (loads.has_room(w)) return w;
    if (best == preferred.size() || loads.of(w) < loads.of(best)) best = w;
  }
  return best;
}

// The last buckets may have been left with workers that had no room: moves replicas until loads are equal.
void even_out(std::vector<Workers>& keepers, Loads& loads) {
  for (size_t from = loads.most(), to = loads.least(); loads.of(from) > loads.of(to) + 1;
       from = loads.most(), to = loads.least()) {
    const auto movable = std::find_if(keepers.rbegin(), keepers.rend(), [&](const Workers& of) {
      return of[0] != from && contains(of, from) && !contains(of, to);
    });
    if (movable == keepers.rend()) return;
    *std::find(movable->begin(), movable->end(), from) = to;
    loads.move(from, to);
  }
}

}  // namespace

HeldForm form_of(int zero) { return zero >= 3 ? HeldForm::sliced : zero > 0 ? HeldForm::sharded : HeldForm::whole; }

std::vector<std::vector<int>> keepers_of(const BucketDeal& deal, int buckets) {
  const size_t workers = deal.ids.size(), count = static_cast<size_t>(buckets);
  check(workers > 0 && deal.copies >= 1, "[sharding] {} workers and {} copies", workers, deal.copies);
  const size_t copies = std::min(static_cast<size_t>(deal.copies), workers);
  std::vector<Workers> preferred(count), keepers(count);
  Loads owned(workers, count), kept(workers, count * copies);
  std::vector<std::pair<uint64_t, size_t>> order(workers);
  for (size_t b = 0; b < count; ++b) {
    for (size_t w = 0; w < workers; ++w) order[w] = {hash_of(b, static_cast<uint64_t>(deal.ids[w])), w};
    std::sort(order.begin(), order.end());
    for (const auto& [hash, w] : order) preferred[b].push_back(w);
    const size_t owner = choose(preferred[b], {}, owned);
    keepers[b].push_back(owner);
    owned.add(owner);
    kept.add(owner);
  }
  for (size_t b = 0; b < count; ++b)
    while (keepers[b].size() < copies) {
      const size_t replica = choose(preferred[b], keepers[b], kept);
      keepers[b].push_back(replica);
      kept.add(replica);
    }
  even_out(keepers, kept);
  std::vector<std::vector<int>> ids(count);
  for (size_t b = 0; b < count; ++b)
    for (const size_t w : keepers[b]) ids[b].push_back(deal.ids[w]);
  return ids;
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
