#pragma once
// A generation: a period with fixed membership (PROTOCOL.md). Generation g exists if and only if its record,
// generations/<g>.json in the run directory, was created; creating is exclusive, so there are never two.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/packet.h"
#include "comm/nccl.h"
#include "elastic/step/assignment.h"
#include "elastic/step/scaling_state.h"

namespace elinvar {

struct GenerationMember {
  int id = 0;  // counts up over the whole run; never given twice
  PeerId peer = 0;
  std::string endpoint;
  std::vector<Interval> share;        // of every step,
  std::vector<Interval> first_share;  // but of the first one, where that was interrupted, or newcomers begin it late
};

// What adaptive scaling writes down: the batch of a generation, and how it came to be.
struct GenerationScaling {
  int64_t batch = 0;  // from the first step on; 0: as before
  std::optional<ScalingState> scaling_state =
      {};                // of the first step, where that is known; before the `recorded` change at that step
  int base_workers = 0;  // how many had the configured batch
  int64_t history = 0;   // the generation that began with a checkpoint, or anew: what older ones know is past
  struct Change {
    int64_t step = 0, batch = 0;
  };
  std::vector<Change> recorded = {};  // that are in the ledger, ahead of the state: they are made again at their steps
};

// An audit of the first step has found a difference (elastic/audit/audit.h). All members compute what is doubted, none
// completes the step: the generation ends with a verdict.
struct Trial {
  std::optional<int64_t> replay = {};  // before that, each goes from the checkpoint of this step to the state again
};

struct Generation {
  int64_t number = 0;
  uint64_t run = 0;
  // The step that it begins with. A planned one (-1) begins after the first step whose trailer shows that every member
  // of the generation before held it.
  int64_t first_step = -1;
  int64_t follows = 0;                    // a planned one: the generation before
  std::vector<GenerationMember> members;  // the first one leads: it reports each step to the coordinator
  int next_id = 1;
  bool checkpoint = false;                        // the state that it begins with is to be saved
  bool stop = false;                              // and nothing more is to be done
  std::string reason;                             // why it was made, for people
  std::optional<GenerationScaling> scaling = {};  // none: it is exact
  std::optional<Trial> trial = {};
  bool group = false;  // its members can be a group of GPUs (comm/gpu_group.h), and are to form one:
  std::optional<int64_t> group_from = {};  // from that of this generation, in which all of them were; else a new one

  int index_of(PeerId peer) const;  // -1: no member
  const std::vector<Interval>& share(int member, int64_t step) const;
};

// What a member asks for: the group of the members of a generation, whose first one makes the id.
struct GroupRequest {
  int64_t generation = 0;
  int members = 0, me = 0;
  std::optional<NcclId> id = {};
  // Or from the group of this generation: without those of its members that are `gone`, or as it is.
  std::optional<int64_t> from = {};
  std::vector<int> gone = {};
};

nlohmann::json to_json(const Generation& generation);
Generation generation_from(const nlohmann::json& json);  // throws Failure

}  // namespace elinvar
