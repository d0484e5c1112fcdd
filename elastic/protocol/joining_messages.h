#pragma once
// How a process joins a job: it asks for the job's description, introduces itself, and gets the state (PROTOCOL.md,
// "Joining").
#include <optional>
#include <string>
#include <vector>

#include "elastic/ledger/digest_file.h"
#include "elastic/protocol/encoded_facts.h"
#include "elastic/protocol/message_kind.h"
#include "elastic/step/model_replicas.h"
#include "elastic/step/scaling_state.h"
#include "tensor/base/json_value.h"
#include "tensor/fields.h"

namespace elinvar {

// A worker's ability to be in a group of GPUs (comm/nccl.h).
struct NcclSupport {
  std::string why_not = "it says nothing of NCCL";  // "": it can be in a group
  std::string version = {}, place = {};             // the library's version; the host and the GPU
  bool shrinks = false;                             // the library can make a group from another one

  ELINVAR_FIELDS(why_not, version, place, shrinks)
};

// The form of a data set of images.
struct ImageForm {
  std::vector<int64_t> shape = {};  // of one image: height, width, channels
  int64_t classes = 0;
  std::vector<std::string> class_names = {};  // may be empty

  ELINVAR_FIELDS(shape, classes, class_names)
};

// A worker, and the job as the worker sees it.
struct WorkerInfo {
  std::string endpoint = {};  // the worker's inbox
  int pid = 0;
  std::string name = {};    // for people and for programs that started it; may be empty
  std::string config = {};  // as TOML with all defaults filled in
  Digest data = {};
  int64_t steps = 0;  // number of updates in the whole run
  int64_t parameters = 0, samples = 0;
  int zero = 0;                // the stage of ZeRO for which it holds the state
  int shards = 0;              // the number of buckets of gradients with ZeRO
  SegmentCosts segments = {};  // if the network is a list of segments; seconds only with pipeline parallelism
  std::vector<TensorLayout> gradient = {}, state = {};
  bool tokens = false;                    // the unit of targets: tokens
  bool accuracy = true;                   // whether targets are right or wrong
  std::optional<ImageForm> images = {};   // null if the samples are not images
  std::vector<std::string> notices = {};  // what the data sets reported when they were opened
  int numerics_version = 0, protocol = 0;
  NcclSupport nccl = {};
  std::vector<Digest> repeated = {};  // gradients of the run's first updates, if the worker has another build
  JsonValue environment = {};         // tools/training/environment.h

  ELINVAR_FIELDS(endpoint, pid, name, config, data, steps, parameters, samples, zero, shards, segments, gradient, state,
                 tokens, accuracy, images, notices, numerics_version, protocol, nccl, repeated, environment)
};

namespace messages {

struct Ask {
  static constexpr Kind kKind{"ask", kToCoordinator, "what is the job?"};
  std::string endpoint = {};
  int pid = 0;
  std::optional<int> protocol = {};  // null: a version before 10

  ELINVAR_FIELDS(endpoint, pid, protocol)
};

struct JobDescription {
  static constexpr Kind kKind{"job", kToWorker, "the configuration, and what else a worker needs"};
  std::string text = {}, file = {};  // the configuration, and its file name for error messages
  std::vector<std::string> overrides = {};
  std::string directory = {};  // the run directory on the coordinator's host
  std::string chaos = {};
  bool imported = false;  // the run begins with checkpoint 0, not with a new network
  int zero = 0;           // ZeRO's stage
  int tp = 1, pp = 1;     // tensor and pipeline parallelism (elastic/step/arrangement.h)
  // Facts are reported at once, because a fault or a stop is tied to a step; otherwise up to a second later.
  bool facts_at_once = false;
  double hold = 0;         // seconds
  std::string build = {};  // the build with which joining workers are compared; "": none yet
  int64_t repeat = 0;      // the number of updates that a worker of another build must repeat
  int64_t arrival = 0;     // the number of workers that asked before this one
  int64_t term = 0;
  std::string endpoint = {};

  ELINVAR_FIELDS(text, file, overrides, directory, chaos, imported, zero, tp, pp, facts_at_once, hold, build, repeat,
                 arrival, term, endpoint)
};

// A learner to which this worker sends the state. No record names it, so a later coordinator learns of it only from
// this list.
struct Learner {
  PeerId peer = 0;
  std::string endpoint = {};

  ELINVAR_FIELDS(peer, endpoint)
};

struct Hello {
  static constexpr Kind kKind{"hello", kToCoordinator, "introduces a worker, also to a later coordinator"};
  WorkerInfo about = {};
  bool active = false;  // it is a member of a generation
  bool loaded = false;  // it has the state after `step` updates
  bool whole = false;   // .. with ZeRO, also the optimizer's state of all buckets
  bool warm = false;    // it has computed a rank gradient
  bool ready = false;   // it has caught up in this attempt of the state transfer
  int64_t attempt = 0;
  int64_t promised = 0;   // the newest generation or fence that it knows
  bool draining = false;  // it was asked to leave
  int id = 0;             // its id if it is a member
  std::vector<Learner> learners = {};

  ELINVAR_FIELDS(about, active, loaded, whole, warm, ready, attempt, promised, draining, id, learners)
};

struct Refused {
  static constexpr Kind kKind{"refused", kToWorker, "it cannot take part; `again`: it may come back as a new worker"};
  std::string reason = {};
  bool again = false;

  ELINVAR_FIELDS(reason, again)
};

struct Welcome {
  static constexpr Kind kKind{"welcome", kToWorker,
                              "it takes part; it restores checkpoint `restore`, or gets the state from members"};
  std::optional<int64_t> restore = {};  // 0: the initial state of a new network
  int zero = 0;                         // the stage of ZeRO for which it restores the checkpoint

  ELINVAR_FIELDS(restore, zero)
};

struct Warm {
  static constexpr Kind kKind{"warm", kToCoordinator,
                              "it has computed a rank gradient, which is discarded, to warm up"};
};

struct Blind {
  static constexpr Kind kKind{"blind", kToCoordinator, "it does not see the checkpoint that it is to restore"};
};

struct Ready {
  static constexpr Kind kKind{"ready", kToCoordinator, "it has the state after `step` updates"};
  int64_t attempt = 0;  // number of the state transfer; 0: it restored a checkpoint

  ELINVAR_FIELDS(attempt)
};

struct SendState {
  static constexpr Kind kKind{
      "send_state", kToWorker,
      "a member gives a learner its part of the state after `step` updates, and, if it `copies`,"
      " every result from there on"};
  PeerId peer = 0;
  std::string endpoint = {};
  int part = 0, parts = 1;
  int64_t attempt = 0;
  bool copies = false;

  ELINVAR_FIELDS(peer, endpoint, part, parts, attempt, copies)
};

struct Missed {
  static constexpr Kind kKind{"missed", kToCoordinator, "the step of a `send_state` has passed here"};
  PeerId peer = 0;  // the learner

  ELINVAR_FIELDS(peer)
};

struct StopSending {
  static constexpr Kind kKind{"stop_sending", kToWorker, "a learner gets no more of the state"};
  PeerId peer = 0;

  ELINVAR_FIELDS(peer)
};

// Bytes of a tensor from this offset on; the blob has the same index in its list.
struct Piece {
  std::string tensor = {};
  int64_t offset = 0;

  ELINVAR_FIELDS(tensor, offset)
};

struct StatePieces {
  static constexpr Kind kKind{"state", kToMember, "a piece of a part of the state after `step` updates, for a learner"};
  int part = 0, parts = 1;
  int64_t attempt = 0;
  bool last = false;                           // the last message of this part
  std::map<std::string, Digest> digests = {};  // digests of the tensors that begin in this message
  std::vector<Piece> pieces = {};
  std::vector<Blob> bytes = {};                    // the bytes of each piece
  std::optional<ScalingState> scaling_state = {};  // with adaptive scaling, in the first message of a part
  std::optional<int64_t> end = {};  // with adaptive scaling, in the first message of a part: the last step, if known
  std::vector<EncodedFacts> facts = {};  // facts of earlier steps that the coordinator has not confirmed

  ELINVAR_FIELDS(part, parts, attempt, last, digests, pieces, bytes, scaling_state, end, facts)
};

struct StateSent {
  static constexpr Kind kKind{"state_sent", kToCoordinator,
                              "it has sent a learner its part of the state after `step` updates"};
  PeerId peer = 0;
  int part = 0, parts = 1;
  double copy_seconds = 0, wait_seconds = 0;  // duration of the copy of the part; time for which the loop stood still

  ELINVAR_FIELDS(peer, part, parts, copy_seconds, wait_seconds)
};

}  // namespace messages
}  // namespace elinvar
