#pragma once
// Parts of a checkpoint from workers that do not see the run directory: the bytes of the very file that such a worker
// would have written go to the coordinator, which writes it.
//
//   worker -> coordinator   piece    step; part, parts, offset; blobs: the next bytes of the file
//   coordinator -> worker   taken    step; part, parts, offset of what it expects next, error?: it gave up, and why
//   worker -> coordinator   saved    as for a part that the worker wrote itself, with "streamed": true; the coordinator
//                                    compares size and digest with what it has on the disk
//
// A worker sends at most kPartWindow bytes beyond what was taken: so much memory a worker is what the coordinator
// needs.
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "comm/message.h"
#include "elastic/checkpoint/checkpoint.h"

namespace elinvar {

inline constexpr int64_t kPartWindow = int64_t{32} << 20;

std::string part_file(int part, int parts);

// Cuts the file of `tensors` into pieces and hands each to `send`, which may wait. Nothing is copied: what is sent
// keeps the tensors alive. Returns what was sent.
CheckpointPart send_part(int64_t step, int part, int parts, const StateDict& tensors,
                         const std::function<void(Message, int64_t end)>& send);

// The coordinator's side. Not thread-safe: for the thread that may wait for the disk.
class PartReceiver {
 public:
  explicit PartReceiver(CheckpointStore store) : store_(std::move(store)) {}

  // Takes a piece and returns the answer to its sender. One that does not follow what came before ends the part.
  Message take(const Message& piece);
  // What to make of a streamed "saved": the same, or with an "error" where the file is not what was announced. The file
  // is on the disk then.
  Message finish(Message saved);

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
