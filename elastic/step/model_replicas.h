#pragma once
// Tensor parallelism: the members of a generation form model replicas, and those of one replica compute each rank
// gradient together, every member some of the network's virtual shards (NUMERICS.md, rule 24). Pure functions of
// speeds, which decide time and no bit of the result.
#include <span>
#include <vector>

#include "elastic/step/assignment.h"

namespace elinvar {

struct ReplicaPlace {
  int replica = 0;
  Interval shards = {0, 1};  // the virtual shards that the member computes
  bool operator==(const ReplicaPlace&) const = default;
  ELINVAR_FIELDS(replica, shards)
};

// Returns the place of each member. There are as few replicas as possible if none has more than `most` members, which
// must be at most `shards`; neighbours form one, and their numbers differ by one at most. Within a replica the shards
// are dealt by speed, at least one to each member.
std::vector<ReplicaPlace> deal_replicas(int shards, int most, std::span<const double> speeds);

// Returns the speed of each replica, in rank gradients per unit of time, if a member's speed is that of a member alone.
std::vector<double> replica_speeds(int shards, std::span<const ReplicaPlace> places, std::span<const double> speeds);

// Gives each member the virtual ranks of its replica.
std::vector<std::vector<Interval>> shares_of_members(std::span<const ReplicaPlace> places,
                                                     const std::vector<std::vector<Interval>>& of_replicas);

}  // namespace elinvar
