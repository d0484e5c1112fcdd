#include "elastic/step/model_replicas.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {

std::vector<ReplicaPlace> deal_replicas(int shards, int most, std::span<const double> speeds) {
  const int members = static_cast<int>(speeds.size());
  check(members > 0 && most >= 1 && most <= shards, "[model replicas] {} members, at most {} to {} shards", members,
        most, shards);
  const int replicas = (members - 1) / most + 1;
  std::vector<ReplicaPlace> places;
  for (int r = 0; r < replicas; ++r) {
    const auto first = places.size();
    const auto size = static_cast<size_t>(members / replicas + (r < members % replicas));
    for (const std::vector<Interval>& own : assign(shards, speeds.subspan(first, size), /*least=*/1))
      places.push_back({.replica = r, .shards = own.front()});
  }
  return places;
}

std::vector<double> replica_speeds(int shards, std::span<const ReplicaPlace> places, std::span<const double> speeds) {
  std::vector<double> of_replicas;
  for (size_t m = 0; m < places.size(); ++m) {
    const double speed = speeds[m] * shards / places[m].shards.size();
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
