#pragma once
// Reports of a worker (signs of life, facts of steps, parts of checkpoints), and requests of people to a job.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/encoded_facts.h"
#include "elastic/protocol/message_kind.h"
#include "comm/blob.h"
#include "tensor/base/json_value.h"
#include "tensor/digest.h"
#include "tensor/fields.h"
#include "tensor/state_slice.h"

namespace elinvar {

// The current work of a worker's loop (elastic/session/work_clock.h).
struct Work {
  std::string what = {};        // "": it is waiting
  double lasts = 0;             // seconds so far
  double usual = 0;             // the longest earlier time in seconds; 0: the work has not been finished twice
  double idle = 0;              // seconds for which it has waited without receiving anything
  std::string misses = {};      // what it lacks for a reduction, or ""
  int64_t part = 0, parts = 0;  // ActivityPart

  ELINVAR_FIELDS(what, lasts, usual, idle, misses, part, parts)
};

namespace messages {

struct Alive {
  static constexpr Kind kKind{"alive", kToCoordinator, "a heartbeat, with facts that were not told yet"};
  Work work = {};
  int64_t leaves = 0;    // rank gradients that it has computed
  int64_t resident = 0;  // bytes of memory that its process uses
  int64_t gpu_peak = 0;  // bytes of tensors on its GPU, at most so far; 0 on a CPU
  // The duration of the forward pass through each segment of the network; empty until this worker has measured it.
  std::vector<double> segment_seconds = {};
  bool answer = false;  // asks the coordinator for a sign of life
  FactsBatch told = {};

  ELINVAR_FIELDS(work, leaves, resident, gpu_peak, segment_seconds, answer, told)
};

struct Heard {
  static constexpr Kind kKind{"heard", kToWorker, "the answer to a heartbeat that asks for one"};
};

struct Facts {
  static constexpr Kind kKind{"facts", kToCoordinator, "facts of steps"};
  FactsBatch told = {};

  ELINVAR_FIELDS(told)
};

struct Ack {
  static constexpr Kind kKind{"ack", kToWorker, "the facts of all steps up to `step` are on file"};
};

struct Shown {
  static constexpr Kind kKind{"shown", kToCoordinator, "tensors of update `step`, as TensorBoard takes them"};
  Blob summary = {};

  ELINVAR_FIELDS(summary)
};

struct FaultInjected {
  static constexpr Kind kKind{"sabotaged", kToCoordinator, "a worker has injected a fault into itself"};
  std::string event = {};
  JsonValue about = {};

  ELINVAR_FIELDS(event, about)
};

// Part `part` of `parts` of the checkpoint of `step`.
struct Saved {
  static constexpr Kind kKind{"saved", kToCoordinator, "a part of the checkpoint of `step` is written, or is not"};
  int part = 0, parts = 1;
  std::string error = {};  // why the part is not saved, or ""
  std::string file = {};
  int64_t bytes = 0;
  Digest digest = {};                               // digest of the file
  std::map<std::string, std::string> digests = {};  // digests of the part's tensors (elastic/checkpoint/state_parts.h)
  std::vector<SliceDigests> slices = {};            // digests of the part's slices of tensors
  std::optional<Digest> state = {};                 // digest of what each worker holds whole, if no step need follow
  bool streamed = false;                      // the coordinator writes the file (elastic/checkpoint/part_stream.h)
  double copy_seconds = 0, wait_seconds = 0;  // duration of the copy of the part; time for which the loop stood still

  ELINVAR_FIELDS(part, parts, error, file, bytes, digest, digests, slices, state, streamed, copy_seconds, wait_seconds)
};

struct FilePiece {
  static constexpr Kind kKind{"piece", kToCoordinator, "bytes of a part's file, from `offset` on"};
  int part = 0, parts = 1;
  int64_t offset = 0;
  std::vector<Blob> bytes = {};

  ELINVAR_FIELDS(part, parts, offset, bytes)
};

struct Taken {
  static constexpr Kind kKind{"taken", kToWorker, "a part's file is written up to `offset`, or is given up"};
  int part = 0, parts = 1;
  int64_t offset = 0;
  std::string error = {};  // why the part is given up, or ""

  ELINVAR_FIELDS(part, parts, offset, error)
};

struct Ctl {
  static constexpr Kind kKind{"ctl", "train ctl → coordinator", "a person asks for the status, or for a change"};
  std::string endpoint = {};
  std::string command = {};              // "status", "scale", "drain", "arrange", "checkpoint", "stop"
  std::optional<int> number = {};        // a number of workers, or a worker's id
  std::optional<std::string> name = {};  // a worker's name, or entries of an arrangement

  ELINVAR_FIELDS(endpoint, command, number, name)
};

struct Answer {
  static constexpr Kind kKind{"answer", "coordinator → train ctl", "what was asked for, or why not"};
  std::string error = {};
  JsonValue status = {};
  bool starting = false;  // nothing was done, because the job has no workers yet: ask again

  ELINVAR_FIELDS(error, status, starting)
};

}  // namespace messages
}  // namespace elinvar
