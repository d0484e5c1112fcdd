#pragma once
// Memory for copies of the state. Training stands still while its state is copied, so the memory is allocated and
// touched in advance (on huge pages if the system grants them) and reused by the next copy.
#include <memory>
#include <mutex>

#include "tensor/state.h"

namespace elinvar {

class SnapshotMemory {
 public:
  // Returns the size of a copy of `part`.
  static int64_t bytes_for(const StateDict& part);
  // Returns the size of a tensor's part of a copy; the tensor has this many bytes.
  static int64_t room_for(int64_t bytes);

  // Allocates a block of this size, unless there is one, or one in use that will be returned. Takes as long as the
  // system needs for fresh memory. If the system has none, copies work without the block.
  void prepare(int64_t bytes);

  // Copies the tensors in the calling thread: into the prepared block if it is free and large enough, else into fresh
  // memory. The copies share one block, which is returned when the last of them is destroyed; the largest returned
  // block is kept. The copies are read-only.
  StateDict copy(const StateDict& part);

 private:
  struct Block {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };
  struct Kept {
    std::mutex mutex;
    Block free;
    int64_t promised = 0;  // the largest block that is free or in use
  };
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
};

}  // namespace elinvar
