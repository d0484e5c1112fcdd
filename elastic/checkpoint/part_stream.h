#pragma once
// Streams parts of a checkpoint from workers that cannot see the run directory to the coordinator, which writes them.
// The file has the same bytes as one that such a worker would have written.
//
// The worker sends FilePiece messages, each answered by Taken, and then Saved with `streamed`. The coordinator compares
// size and digest with the file on its disk (elastic/protocol/reporting_messages.h).
//
// A worker sends at most kPartWindow bytes beyond those that were taken, so the coordinator needs that much memory for
// each worker.
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/protocol/message.h"

namespace elinvar {

inline constexpr int64_t kPartWindow = int64_t{32} << 20;

std::string part_file(int part, int parts);

// Cuts the file of tensors and slices into pieces and passes each to `send`, which may wait. Copies nothing: a piece
// keeps the tensors alive. Returns the description of the file.
CheckpointPart send_part(int part, int parts, const StateDict& tensors,
                         const std::function<void(messages::FilePiece, int64_t end)>& send,
                         std::span<const StateSlice> slices = {});

// The coordinator's side. Not thread-safe: for the thread that may wait for the disk.
class PartReceiver {
 public:
  explicit PartReceiver(CheckpointStore store) : store_(std::move(store)) {}

  // Takes a piece of the checkpoint of `step` and returns the answer. A piece that does not follow the previous one
  // ends the part.
  messages::Taken take(PeerId worker, int64_t step, const messages::FilePiece& piece);
  // Completes a streamed Saved: returns it with the file's name, or with an error if the file differs from the
  // announcement. The file is then on disk.
  messages::Saved finish(PeerId worker, int64_t step, messages::Saved saved);

 private:
  struct Part {
    int64_t step = 0;
    int part = 0, parts = 0;
    PartFile file;
  };
  CheckpointStore store_;
  std::map<PeerId, Part> parts_;  // each worker sends one part at a time
};

}  // namespace elinvar
