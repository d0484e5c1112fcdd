#pragma once
// Parts of a checkpoint from workers that do not see the run directory: the bytes of the very file that such a worker
// would have written go to the coordinator, which writes it.
//
// The worker sends FilePiece messages, each answered by Taken, and then Saved with `streamed`; the coordinator compares
// size and digest with what it has on the disk (elastic/protocol/reporting_messages.h).
//
// A worker sends at most kPartWindow bytes beyond what was taken: so much memory a worker is what the coordinator
// needs.
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/protocol/message.h"

namespace elinvar {

inline constexpr int64_t kPartWindow = int64_t{32} << 20;

std::string part_file(int part, int parts);

// Cuts the file of `tensors` into pieces and hands each to `send`, which may wait. Nothing is copied: what is sent
// keeps the tensors alive. Returns what was sent.
CheckpointPart send_part(int64_t step, int part, int parts, const StateDict& tensors,
                         const std::function<void(messages::FilePiece, int64_t end)>& send);

// The coordinator's side. Not thread-safe: for the thread that may wait for the disk.
class PartReceiver {
 public:
  explicit PartReceiver(CheckpointStore store) : store_(std::move(store)) {}

  // Takes a piece of the checkpoint of `step` and returns the answer. One that does not follow what came before ends
  // the part.
  messages::Taken take(PeerId worker, int64_t step, const messages::FilePiece& piece);
  // What to make of a streamed Saved: the same, or with an error where the file is not what was announced. The file is
  // on the disk then.
  messages::Saved finish(PeerId worker, int64_t step, messages::Saved saved);

 private:
  struct Part {
    int64_t step = 0;
    int part = 0, parts = 0;
    PartFile file;
  };
  CheckpointStore store_;
  std::map<PeerId, Part> parts_;  // a worker sends one after the other
};

}  // namespace elinvar
