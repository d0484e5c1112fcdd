#pragma once
// Tensor and pipeline parallelism: the members of a generation form model replicas, and those of one replica compute
// each rank gradient together. A replica is a pipeline of stages, each of which computes some segments of the network
// (NUMERICS.md, rule 28); the members of a stage compute some of its virtual shards each (rule 24). Pure functions of
// speeds and costs, which decide time and no bit of the result.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/step/arrangement.h"
#include "elastic/step/assignment.h"

namespace elinvar {

struct ReplicaPlace {
  int replica = 0;
  Interval shards = {0, 1};  // the virtual shards that the member computes
  int stage = 0;
  std::vector<Interval> segments = {};  // those of the stage, ascending; none without pipeline parallelism: all
  double work = 1;                      // the part of a rank gradient's work that is in these segments
  bool operator==(const ReplicaPlace&) const = default;
  ELINVAR_FIELDS(replica, shards, stage, segments, work)
};

// The segments of a network.
struct SegmentCosts {
  std::vector<double> seconds = {};  // of both passes through each; only ratios matter; empty: not measured yet
  // The segment with which each is computed: itself, or a later one that reads a parameter of it.
  std::vector<int> homes = {};
  std::optional<std::vector<std::string>> names = {};  // for people; null: not known

  bool operator==(const SegmentCosts&) const = default;
  ELINVAR_FIELDS(seconds, homes, names)
};

// Upper limits of a model replica.
struct ReplicaLimits {
  int shards = 1;              // the network's virtual shards
  int tp = 1;                  // the members of a stage, at most `shards`
  int pp = 1;                  // the stages, at most as many as segments have homes
  SegmentCosts segments = {};  // with pp > 1

  int members() const { return tp * pp; }
  bool together() const { return members() > 1; }
};

// Returns what a model replica may be in this arrangement of a network with so many virtual shards.
ReplicaLimits limits_of(const Arrangement& arrangement, int shards, SegmentCosts segments = {});

// Returns how many stages the segments allow.
int most_stages(const SegmentCosts& segments);

// Returns the numbers of members of the model replicas of `members`: as few replicas as possible, and as equal.
std::vector<int> replica_sizes(const ReplicaLimits& limits, int members);

// Returns the arrangement with the smallest limits that divides so many workers in the same way.
Arrangement simplified(const Arrangement& arrangement, int workers);

// Returns the place of each member. Neighbours form a replica, and within it a stage. Segments are dealt so that the
// slowest stage is as fast as possible, shards within a stage by speed, at least one of each to each.
std::vector<ReplicaPlace> deal_replicas(const ReplicaLimits& limits, std::span<const double> speeds);

// Returns the part of a rank gradient's work that a member does in this place.
double portion(int shards, const ReplicaPlace& place);

// Returns the speed of each replica, in rank gradients per unit of time, if a member's speed is that of a member alone.
std::vector<double> replica_speeds(int shards, std::span<const ReplicaPlace> places, std::span<const double> speeds);

// Gives each member the virtual ranks of its replica.
std::vector<std::vector<Interval>> shares_of_members(std::span<const ReplicaPlace> places,
                                                     const std::vector<std::vector<Interval>>& of_replicas);

}  // namespace elinvar
