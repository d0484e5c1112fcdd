#pragma once
// How a process joins a job: it asks what the job is, introduces itself, and gets the state (PROTOCOL.md, "Joining").
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "elastic/ledger/digest_file.h"
#include "elastic/protocol/message_kind.h"
#include "elastic/protocol/told_facts.h"
#include "elastic/step/pace.h"

namespace elinvar {

// What a worker can be in a group of GPUs with (comm/nccl.h).
struct NcclSupport {
  std::string why_not = "it says nothing of NCCL";  // "": it can
  std::string version = {}, place = {};             // of the library, and which GPU of which host
  bool shrinks = false;                             // the library can make a group from another

  static void fields(auto& self, auto&& field) {
    field("why_not", self.why_not);
    field("version", self.version);
    field("place", self.place);
    field("shrinks", self.shrinks);
  }
};

// A worker, and the job as it sees it.
struct WorkerInfo {
  std::string endpoint = {};  // of its inbox
  int64_t pid = 0;
  std::string name = {};    // for people and programs that started it; "": none
  std::string config = {};  // as TOML, with everything filled in
  Digest data = {};
  int64_t steps = 0;  // of the run
  int64_t parameters = 0, samples = 0;
  std::vector<TensorLayout> gradient = {}, state = {};
  bool tokens = false;  // are what targets count
  int numerics_version = 0, protocol = 0;
  NcclSupport nccl = {};
  std::vector<Digest> repeated = {};  // gradients of the run's first updates, by a worker of another build
  nlohmann::json environment = nlohmann::json::object();  // tools/training/environment.h

  static void fields(auto& self, auto&& field) {
    field("endpoint", self.endpoint);
    field("pid", self.pid);
    field("name", self.name);
    field("config", self.config);
    field("data", self.data);
    field("steps", self.steps);
    field("parameters", self.parameters);
    field("samples", self.samples);
    field("gradient", self.gradient);
    field("state", self.state);
    field("tokens", self.tokens);
    field("numerics_version", self.numerics_version);
    field("protocol", self.protocol);
    field("nccl", self.nccl);
    field("repeated", self.repeated);
    field("environment", self.environment);
  }
};

namespace messages {

struct Ask {
  static constexpr Kind kKind{"ask", kToCoordinator, "what is the job?"};
  std::string endpoint = {};
  int64_t pid = 0;
  std::optional<int> protocol = {};  // none: of a version before 10

  static void fields(auto& self, auto&& field) {
    field("endpoint", self.endpoint);
    field("pid", self.pid);
    field("protocol", self.protocol);
  }
};

struct JobDescription {
  static constexpr Kind kKind{"job", kToWorker, "the configuration, and what a worker needs besides it"};
  std::string text = {}, file = {};  // of the configuration, and its name for error messages
  std::vector<std::string> overrides = {};
  std::string directory = {};  // of the run, on the coordinator's host
  std::string chaos = {};
  bool imported = false;       // the run begins with checkpoint 0, not with a new network
  bool facts_at_once = false;  // something is to happen at a step, and not up to a second later
  double hold = 0;             // seconds
  std::string build = {};      // that joining workers are compared with; "": none yet
  int64_t repeat = 0;          // updates that a worker of another build is to repeat
  int64_t arrival = 0;         // workers that asked before this one
  int64_t tenure = 0;
  std::string endpoint = {};

  static void fields(auto& self, auto&& field) {
    field("text", self.text);
    field("file", self.file);
    field("overrides", self.overrides);
    field("directory", self.directory);
    field("chaos", self.chaos);
    field("imported", self.imported);
    field("facts_at_once", self.facts_at_once);
    field("hold", self.hold);
    field("build", self.build);
    field("repeat", self.repeat);
    field("arrival", self.arrival);
    field("tenure", self.tenure);
    field("endpoint", self.endpoint);
  }
};

// A learner that this worker feeds: no record names it, so a later coordinator knows of it by this alone.
struct Learner {
  PeerId peer = 0;
  std::string endpoint = {};

  static void fields(auto& self, auto&& field) {
    field("peer", self.peer);
    field("endpoint", self.endpoint);
  }
};

struct Hello {
  static constexpr Kind kKind{"hello", kToCoordinator, "introduces a worker, also to a later coordinator"};
  WorkerInfo about = {};
  bool active = false;  // it is a member of a generation
  bool loaded = false;  // it has the state after `step` updates
  bool warm = false;    // it has computed a leaf
  bool ready = false;   // it has caught up in this attempt to give it the state
  int64_t attempt = 0;
  int64_t promised = 0;   // the newest generation or fence that it knows of
  bool draining = false;  // it was asked to leave
  int id = 0;             // of a member
  std::vector<Learner> learners = {};

  static void fields(auto& self, auto&& field) {
    field("about", self.about);
    field("active", self.active);
    field("loaded", self.loaded);
    field("warm", self.warm);
    field("ready", self.ready);
    field("attempt", self.attempt);
    field("promised", self.promised);
    field("draining", self.draining);
    field("id", self.id);
    field("learners", self.learners);
  }
};

struct Refused {
  static constexpr Kind kKind{"refused", kToWorker, "it cannot take part; `again`: it may come back as a new worker"};
  std::string reason = {};
  bool again = false;

  static void fields(auto& self, auto&& field) {
    field("reason", self.reason);
    field("again", self.again);
  }
};

struct Welcome {
  static constexpr Kind kKind{"welcome", kToWorker,
                              "it takes part; it restores checkpoint `restore`, or gets the state from members"};
  std::optional<int64_t> restore = {};  // 0: as a new network is

  static void fields(auto& self, auto&& field) { field("restore", self.restore); }
};

struct Warm {
  static constexpr Kind kKind{"warm", kToCoordinator, "it has computed a leaf that counts for nothing"};
  static void fields(auto&, auto&&) {}
};

struct Blind {
  static constexpr Kind kKind{"blind", kToCoordinator, "it does not see the checkpoint that it is to restore"};
  static void fields(auto&, auto&&) {}
};

struct Ready {
  static constexpr Kind kKind{"ready", kToCoordinator, "it has the state after `step` updates"};
  int64_t attempt = 0;  // to give it the state; 0: it restored a checkpoint

  static void fields(auto& self, auto&& field) { field("attempt", self.attempt); }
};

struct Feed {
  static constexpr Kind kKind{
      "feed", kToWorker,
      "a member gives a learner its part of the state after `step` updates, and, if it `copies`,"
      " every result from there on"};
  PeerId peer = 0;
  std::string endpoint = {};
  int part = 0, parts = 1;
  int64_t attempt = 0;
  bool copies = false;

  static void fields(auto& self, auto&& field) {
    field("peer", self.peer);
    field("endpoint", self.endpoint);
    field("part", self.part);
    field("parts", self.parts);
    field("attempt", self.attempt);
    field("copies", self.copies);
  }
};

struct Missed {
  static constexpr Kind kKind{"missed", kToCoordinator, "the step of a `feed` has passed here"};
  PeerId peer = 0;  // the learner

  static void fields(auto& self, auto&& field) { field("peer", self.peer); }
};

struct Unfeed {
  static constexpr Kind kKind{"unfeed", kToWorker, "a learner is fed no more"};
  PeerId peer = 0;

  static void fields(auto& self, auto&& field) { field("peer", self.peer); }
};

// Bytes of a tensor, from this offset on; the blob of the same place in the list.
struct Piece {
  std::string tensor = {};
  int64_t offset = 0;

  static void fields(auto& self, auto&& field) {
    field("tensor", self.tensor);
    field("offset", self.offset);
  }
};

struct StatePieces {
  static constexpr Kind kKind{"state", kToMember, "a piece of a part of the state after `step` updates, for a learner"};
  int part = 0, parts = 1;
  int64_t attempt = 0;
  bool last = false;                           // no more of this part
  std::map<std::string, Digest> digests = {};  // of the tensors that begin here
  std::vector<Piece> pieces = {};
  std::vector<Blob> bytes = {};       // of each
  std::optional<Pace> pace = {};      // with adaptive scaling, in the first of a part,
  std::optional<int64_t> end = {};    // and the last step, where it is known
  std::vector<ToldFacts> facts = {};  // of earlier steps that the coordinator has not confirmed

  static void fields(auto& self, auto&& field) {
    field("part", self.part);
    field("parts", self.parts);
    field("attempt", self.attempt);
    field("last", self.last);
    field("digests", self.digests);
    field("pieces", self.pieces);
    field("bytes", self.bytes);
    field("pace", self.pace);
    field("end", self.end);
    field("facts", self.facts);
  }
};

struct Fed {
  static constexpr Kind kKind{"fed", kToCoordinator,
                              "it has sent a learner its part of the state after `step` updates"};
  PeerId peer = 0;
  int part = 0, parts = 1;
  double copy_seconds = 0, wait_seconds = 0;  // for the copy of the part; for which the loop stood still

  static void fields(auto& self, auto&& field) {
    field("peer", self.peer);
    field("part", self.part);
    field("parts", self.parts);
    field("copy_seconds", self.copy_seconds);
    field("wait_seconds", self.wait_seconds);
  }
};

}  // namespace messages
}  // namespace elinvar
