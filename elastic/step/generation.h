#pragma once
// A generation is a period with fixed membership (PROTOCOL.md). Generation g exists if and only if its record,
// generations/<g>.json in the run directory, was created; creation is exclusive, so there is never a second one.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/peer.h"
#include "comm/nccl.h"
#include "elastic/step/arrangement.h"
#include "elastic/step/model_replicas.h"
#include "elastic/step/scaling_state.h"
#include "elastic/step/sharding.h"

namespace elinvar {

struct GenerationMember {
  int id = 0;  // counts up over the whole run and is never reused
  PeerId peer = 0;
  std::string endpoint;
  std::vector<Interval> share;  // virtual ranks in every step but possibly the first
  // Virtual ranks in the first step, if that step was interrupted or newcomers begin it late.
  std::vector<Interval> first_share;
  ReplicaPlace place = {};  // with tensor or pipeline parallelism
};

// The record of adaptive scaling: a generation's batch and its origin.
struct GenerationScaling {
  int64_t batch = 0;  // the batch from the first step on; 0: unchanged
  std::optional<ScalingState> scaling_state =
      {};                // at the first step, if known; before the `recorded` change at that step
  int base_workers = 0;  // the number of workers that had the configured batch
  // the generation that began from a checkpoint or from the start; knowledge of older ones is obsolete
  int64_t history = 0;
  struct Change {
    int64_t step = 0, batch = 0;
  };
  std::vector<Change> recorded = {};  // changes in the ledger but ahead of the state: repeated at their steps
};

// An audit of the first step has found a difference (elastic/audit/audit.h). All members compute the disputed results
// and none completes the step: the generation ends with a verdict.
struct Trial {
  std::optional<int64_t> replay = {};  // the checkpoint from whose step each member first replays up to the state
};

struct Generation {
  int64_t number = 0;
  uint64_t run = 0;
  // The first step. A planned generation (-1) begins after the first step whose trailer shows that every member of the
  // previous generation held the plan.
  int64_t first_step = -1;
  int64_t follows = 0;                         // the previous generation, if this one is planned
  std::vector<GenerationMember> members = {};  // the first one leads: it reports each step to the coordinator
  int next_id = 1;
  bool checkpoint = false;                        // save the state with which the generation begins
  bool stop = false;                              // save that state and stop
  std::string reason = {};                        // the reason for the generation, for people
  std::optional<GenerationScaling> scaling = {};  // null with exact scaling
  std::optional<Trial> trial = {};
  bool group = false;  // the members can form a group of GPUs (comm/gpu_group.h), and must do so
  // The generation from whose group the new one is made; all members were in it. Null: a new group.
  std::optional<int64_t> group_from = {};
  std::optional<Sharding> sharding = {};  // null: every member has the whole state of the optimizer
  // The arrangement of the job in this generation. Null in records of older versions, which could not change it.
  std::optional<Arrangement> arrangement = {};
  bool automatic = false;  // the job chooses other arrangements by itself
  // With tensor or pipeline parallelism, the number of the network's virtual shards, which the members of a stage
  // share; else 0. Members of a replica have the same virtual ranks.
  int shards = 0;

  int index_of(PeerId peer) const;  // -1 if the peer is not a member
  int index_of_id(int id) const;    // -1 if no member has this id
  std::vector<int> ids() const;
  bool divides_shards() const;    // the members of some stage compute virtual shards together
  bool divides_segments() const;  // some model replica has several stages
  const std::vector<Interval>& share(int member, int64_t step) const;
  // The stage of ZeRO with which members hold the state after `step` updates; 0: each has all of it.
  int held_with(int64_t step) const;
};

// A member's request for the group of a generation's members. The first member makes the id.
struct GroupRequest {
  int64_t generation = 0;
  int members = 0, me = 0;
  std::optional<NcclId> id = {};
  // Makes the group from the group of this generation, without those of its members that are `gone`.
  std::optional<int64_t> from = {};
  std::vector<int> gone = {};
};

nlohmann::json to_json(const Generation& generation);
Generation generation_from(const nlohmann::json& json);  // throws Failure

}  // namespace elinvar
