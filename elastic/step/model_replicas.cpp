#include "elastic/step/model_replicas.h"

#include <algorithm>
#include <numeric>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

// A segment, and all that are computed with it.
struct Unit {
  std::vector<int> segments;
  double seconds = 0;
};

// Returns the units in the order of their last segments. Segments count alike until they are measured.
std::vector<Unit> units_of(const SegmentCosts& costs) {
  std::vector<Unit> of_segment(costs.homes.size());
  for (size_t i = 0; i < of_segment.size(); ++i) {
    const auto home = static_cast<size_t>(costs.homes[i]);
    check(home >= i && home < of_segment.size(), "[model replicas] segment {} is computed with segment {} of {}", i,
          home, of_segment.size());
    of_segment[home].segments.push_back(static_cast<int>(i));
    of_segment[home].seconds += costs.seconds.empty() ? 1 : costs.seconds.at(i);
  }
  std::erase_if(of_segment, [](const Unit& unit) { return unit.segments.empty(); });
  return of_segment;
}

std::vector<Interval> intervals_of(std::vector<int> segments) {
  std::sort(segments.begin(), segments.end());
  std::vector<Interval> intervals;
  for (const int s : segments) {
    if (!intervals.empty() && intervals.back().end == s) ++intervals.back().end;
    else intervals.push_back({s, s + 1});
  }
  return intervals;
}

// Cuts the units into a run for each stage so that the largest time of a stage, work / speed, is the least: a dynamic
// program over the first `u` units on the first `s` stages. Returns the last unit of each stage, plus one.
std::vector<size_t> cut(const std::vector<Unit>& units, std::span<const double> speeds) {
  const size_t n = units.size(), stages = speeds.size();
  std::vector<double> sum(n + 1, 0);
  for (size_t u = 0; u < n; ++u) sum[u + 1] = sum[u] + units[u].seconds;
  constexpr double kNever = 1e300;
  std::vector<std::vector<double>> least(stages + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(n + 1, 0));
  least[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s)
    for (size_t u = s; u <= n; ++u)
      for (size_t before = s - 1; before < u; ++before) {
        const double slowest = std::max(least[s - 1][before], (sum[u] - sum[before]) / speeds[s - 1]);
        if (slowest >= least[s][u]) continue;
        least[s][u] = slowest;
        from[s][u] = before;
      }
  std::vector<size_t> ends(stages);
  for (size_t s = stages, u = n; s > 0; u = from[s][u], --s) ends[s - 1] = u;
  return ends;
}

// The stages of one replica, with as many members each as differ by one at most.
std::vector<ReplicaPlace> deal_stages(const ReplicaLimits& limits, int replica, std::span<const double> speeds) {
  const std::vector<Unit> units = limits.pp > 1 ? units_of(limits.segments) : std::vector<Unit>{};
  const double work =
      std::accumulate(units.begin(), units.end(), 0.0, [](double sum, const Unit& unit) { return sum + unit.seconds; });
  const auto members = speeds.size();
  const auto stages = std::min(static_cast<size_t>(limits.pp), members);
  std::vector<std::span<const double>> of_stage;
  std::vector<double> stage_speeds;
  for (size_t s = 0, first = 0; s < stages; ++s) {
    of_stage.push_back(speeds.subspan(first, members / stages + (s < members % stages)));
    first += of_stage.back().size();
    stage_speeds.push_back(std::accumulate(of_stage[s].begin(), of_stage[s].end(), 0.0));
  }
  const std::vector<size_t> ends = stages > 1 ? cut(units, stage_speeds) : std::vector<size_t>{units.size()};
  std::vector<ReplicaPlace> places;
  for (size_t s = 0, unit = 0; s < stages; ++s) {
    ReplicaPlace place{.replica = replica, .stage = static_cast<int>(s)};
    std::vector<int> segments;
    double own = 0;
    for (; stages > 1 && unit < ends[s]; ++unit) {
      segments.insert(segments.end(), units[unit].segments.begin(), units[unit].segments.end());
      own += units[unit].seconds;
    }
    place.segments = intervals_of(std::move(segments));
    if (stages > 1) place.work = own / work;
    for (const std::vector<Interval>& shards : assign(limits.shards, of_stage[s], /*least=*/1)) {
      place.shards = shards.front();
      places.push_back(place);
    }
  }
  return places;
}

}  // namespace

ReplicaLimits limits_of(const Arrangement& arrangement, int shards, SegmentCosts segments) {
  return {.shards = arrangement.replica() > 1 ? shards : 1,
          .tp = arrangement.tp,
          .pp = arrangement.pp,
          .segments = std::move(segments)};
}

int most_stages(const SegmentCosts& segments) { return static_cast<int>(units_of(segments).size()); }

std::vector<int> replica_sizes(const ReplicaLimits& limits, int members) {
  const int replicas = (members - 1) / limits.members() + 1;
  std::vector<int> sizes;
  for (int r = 0; r < replicas; ++r) sizes.push_back(members / replicas + (r < members % replicas));
  return sizes;
}

Arrangement simplified(const Arrangement& arrangement, int workers) {
  const int largest = replica_sizes({.tp = arrangement.tp, .pp = arrangement.pp}, workers).front();
  Arrangement simple = arrangement;
  simple.pp = std::min(arrangement.pp, largest);
  simple.tp = (largest - 1) / simple.pp + 1;
  if (workers == 1) simple.zero = 0;
  if (simple.zero == 0) simple.copies = Arrangement().copies;
  return simple;
}

std::vector<ReplicaPlace> deal_replicas(const ReplicaLimits& limits, std::span<const double> speeds) {
  const int members = static_cast<int>(speeds.size());
  check(members > 0 && limits.tp >= 1 && limits.tp <= limits.shards,
        "[model replicas] {} members, at most {} to {} shards", members, limits.tp, limits.shards);
  check(limits.pp >= 1 && (limits.pp == 1 || limits.pp <= most_stages(limits.segments)),
        "[model replicas] {} stages of {} segments", limits.pp, limits.segments.homes.size());
  std::vector<ReplicaPlace> places;
  int replica = 0;
  for (const int size : replica_sizes(limits, members)) {
    const std::vector<ReplicaPlace> own =
        deal_stages(limits, replica++, speeds.subspan(places.size(), static_cast<size_t>(size)));
    places.insert(places.end(), own.begin(), own.end());
  }
  return places;
}

double portion(int shards, const ReplicaPlace& place) { return place.work * place.shards.size() / shards; }

std::vector<double> replica_speeds(int shards, std::span<const ReplicaPlace> places, std::span<const double> speeds) {
  std::vector<double> of_replicas;
  for (size_t m = 0; m < places.size(); ++m) {
    const double speed = speeds[m] / portion(shards, places[m]);
    const auto replica = static_cast<size_t>(places[m].replica);
    if (replica == of_replicas.size()) of_replicas.push_back(speed);
    else of_replicas[replica] = std::min(of_replicas[replica], speed);
  }
  return of_replicas;
}

std::vector<std::vector<Interval>> shares_of_members(std::span<const ReplicaPlace> places,
                                                     const std::vector<std::vector<Interval>>& of_replicas) {
  std::vector<std::vector<Interval>> shares;
  for (const ReplicaPlace& place : places) shares.push_back(of_replicas[static_cast<size_t>(place.replica)]);
  return shares;
}

}  // namespace elinvar
