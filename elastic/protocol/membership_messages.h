#pragma once
// Membership: generations, fences and ends (PROTOCOL.md, "Planned changes", "Death", "The coordinator's own death").
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/message_kind.h"
#include "elastic/step/generation.h"
#include "tensor/fields.h"

namespace elinvar::messages {

struct Propose {
  static constexpr Kind kKind{"propose", kToWorker, "the next generation, which begins once all members hold it"};
  Generation record = {};

  ELINVAR_FIELDS(record)
};

struct Start {
  static constexpr Kind kKind{"start", kToWorker, "a generation begins, at the beginning or after a fence"};
  Generation record = {};
  // Members that can give their last result, with their number of complete reductions.
  std::map<PeerId, int64_t> completed = {};

  ELINVAR_FIELDS(record, completed)
};

struct Entered {
  static constexpr Kind kKind{"entered", kToCoordinator, "it goes on in this generation"};
  std::optional<int64_t> end = {};  // with adaptive scaling: the last step, once it is known

  ELINVAR_FIELDS(end)
};

struct Fence {
  static constexpr Kind kKind{"fence", kToWorker, "no message of an older generation counts any more"};
};

// Which optimizer state a worker holds: that of its buckets in a deal, since a step of the generation of this number,
// or that of all buckets (`whole`), if it has restored its state and has not updated it yet.
struct HeldShards {
  int64_t generation = 0;
  BucketDeal deal = {};
  bool whole = false;
  int zero = 1;  // the stage with which it is held; 0: without ZeRO

  ELINVAR_FIELDS(generation, deal, whole, zero)
};

struct Fenced {
  static constexpr Kind kKind{"fenced", kToCoordinator, "the answer to a fence: where it stands"};
  int64_t promised = 0;              // the newest fence that it has promised
  bool active = false;               // it is a member of a generation
  bool loaded = false;               // it has a state
  bool keeps = false;                // it has the last result, for members that lack it
  std::vector<Interval> share = {};  // its virtual ranks in the interrupted step
  bool lacks_values = false;         // with ZeRO: values of its newest update have not come from other members
  int64_t group = 0;                 // the generation whose group of GPUs it is in, with nothing in transfer; 0: none
  // With adaptive scaling: the scaling state of the interrupted step, or, if not `certain`, of the state; and the last
  // step, once it is known.
  std::optional<ScalingState> scaling_state = {};
  bool certain = false;
  std::optional<int64_t> end = {};
  std::optional<HeldShards> shards = {};  // with ZeRO

  ELINVAR_FIELDS(promised, active, loaded, keeps, share, lacks_values, group, scaling_state, certain, end, shards)
};

struct Release {
  static constexpr Kind kKind{"release", kToWorker,
                              "it is no longer part of the job; `again`: it may come back as a new worker"};
  std::string what = {};  // "finished", "stopped", "left", "expelled", "failed"
  std::string reason = {};
  bool again = false;

  ELINVAR_FIELDS(what, reason, again)
};

struct NewCoordinator {
  static constexpr Kind kKind{"coordinator", kToWorker, "a coordinator that has taken over says where it is"};
  int64_t term = 0;
  std::string endpoint = {};

  ELINVAR_FIELDS(term, endpoint)
};

struct Suspect {
  static constexpr Kind kKind{"suspect", kToCoordinator, "a peer is gone, or sends what makes no sense"};
  PeerId peer = 0;
  std::string reason = {};

  ELINVAR_FIELDS(peer, reason)
};

struct Drain {
  static constexpr Kind kKind{"drain", kToCoordinator, "it asks to leave"};
};

struct Failed {
  static constexpr Kind kKind{"failed", kToCoordinator, "it cannot go on, and so the run ends"};
  std::string reason = {};
  int exit_code = 3;

  ELINVAR_FIELDS(reason, exit_code)
};

}  // namespace elinvar::messages
