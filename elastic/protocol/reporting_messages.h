#pragma once
// What a worker reports: that it lives, facts of steps, parts of checkpoints; and what people ask of a job.
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/message_kind.h"
#include "elastic/protocol/told_facts.h"
#include "tensor/digest.h"

namespace elinvar {

// What a worker's loop is at (elastic/session/work_clock.h).
struct Work {
  std::string what = {};    // "": it waits
  double lasts = 0;         // seconds already,
  double usual = 0;         // and at most before; 0: it has never been finished twice
  double idle = 0;          // it waits, and nothing came for so long,
  std::string misses = {};  // which it misses of a reduction; "": nothing

  static void fields(auto& self, auto&& field) {
    field("what", self.what);
    field("lasts", self.lasts);
    field("usual", self.usual);
    field("idle", self.idle);
    field("misses", self.misses);
  }
};

namespace messages {

struct Alive {
  static constexpr Kind kKind{"alive", kToCoordinator, "a heartbeat, with facts that were not told yet"};
  Work work = {};
  int64_t leaves = 0;   // that it has computed
  bool answer = false;  // it wants to hear that the coordinator lives
  TellsFacts told = {};

  static void fields(auto& self, auto&& field) {
    field("work", self.work);
    field("leaves", self.leaves);
    field("answer", self.answer);
    field("told", self.told);
  }
};

struct Heard {
  static constexpr Kind kKind{"heard", kToWorker, "the answer to a heartbeat that asks for one"};
  static void fields(auto&, auto&&) {}
};

struct Facts {
  static constexpr Kind kKind{"facts", kToCoordinator, "facts of steps"};
  TellsFacts told = {};

  static void fields(auto& self, auto&& field) { field("told", self.told); }
};

struct Ack {
  static constexpr Kind kKind{"ack", kToWorker, "the facts of all steps up to `step` are on file"};
  static void fields(auto&, auto&&) {}
};

struct Shown {
  static constexpr Kind kKind{"shown", kToCoordinator, "tensors of update `step`, as TensorBoard takes them"};
  Blob summary = {};

  static void fields(auto& self, auto&& field) { field("summary", self.summary); }
};

struct Sabotaged {
  static constexpr Kind kKind{"sabotaged", kToCoordinator, "a worker has done a fault to itself on purpose"};
  std::string event = {};
  nlohmann::json about = nlohmann::json::object();

  static void fields(auto& self, auto&& field) {
    field("event", self.event);
    field("about", self.about);
  }
};

// A part of the checkpoint of `step`, of so many.
struct Saved {
  static constexpr Kind kKind{"saved", kToCoordinator, "a part of the checkpoint of `step` is written, or is not"};
  int part = 0, parts = 1;
  std::string error = {};  // why it is not; "": it is
  std::string file = {};
  int64_t bytes = 0;
  Digest digest = {};                               // of the file
  std::map<std::string, std::string> digests = {};  // of its tensors (elastic/checkpoint/state_parts.h)
  std::optional<Digest> state = {};                 // of the whole state, if no step need follow
  bool streamed = false;                            // the coordinator writes it (elastic/checkpoint/part_stream.h)
  double copy_seconds = 0, wait_seconds = 0;        // for the copy of the part; for which the loop stood still

  static void fields(auto& self, auto&& field) {
    field("part", self.part);
    field("parts", self.parts);
    field("error", self.error);
    field("file", self.file);
    field("bytes", self.bytes);
    field("digest", self.digest);
    field("digests", self.digests);
    field("state", self.state);
    field("streamed", self.streamed);
    field("copy_seconds", self.copy_seconds);
    field("wait_seconds", self.wait_seconds);
  }
};

struct FilePiece {
  static constexpr Kind kKind{"piece", kToCoordinator, "bytes of a part's file, from `offset` on"};
  int part = 0, parts = 1;
  int64_t offset = 0;
  std::vector<Blob> bytes = {};

  static void fields(auto& self, auto&& field) {
    field("part", self.part);
    field("parts", self.parts);
    field("offset", self.offset);
    field("bytes", self.bytes);
  }
};

struct Taken {
  static constexpr Kind kKind{"taken", kToWorker, "a part's file is written up to `offset`, or is given up"};
  int part = 0, parts = 1;
  int64_t offset = 0;
  std::string error = {};  // why it is given up; "": it is not

  static void fields(auto& self, auto&& field) {
    field("part", self.part);
    field("parts", self.parts);
    field("offset", self.offset);
    field("error", self.error);
  }
};

struct Ctl {
  static constexpr Kind kKind{"ctl", "train ctl → coordinator", "a person asks for the status, or for a change"};
  std::string endpoint = {};
  std::string command = {};              // "status", "scale", "drain", "checkpoint", "stop"
  std::optional<int> number = {};        // of workers, or of a worker
  std::optional<std::string> name = {};  // of a worker

  static void fields(auto& self, auto&& field) {
    field("endpoint", self.endpoint);
    field("command", self.command);
    field("number", self.number);
    field("name", self.name);
  }
};

struct Answer {
  static constexpr Kind kKind{"answer", "coordinator → train ctl", "what was asked for, or why not"};
  std::string error = {};
  nlohmann::json status = nlohmann::json::object();

  static void fields(auto& self, auto&& field) {
    field("error", self.error);
    field("status", self.status);
  }
};

}  // namespace messages
}  // namespace elinvar
