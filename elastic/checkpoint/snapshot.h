#pragma once
// Memory for copies of the state. A training step stands still while its state is copied, so the memory is there
// before: asked for, touched (on huge pages where the system grants them), and used again by the next copy.
#include <memory>
#include <mutex>

#include "tensor/state.h"

namespace elinvar {

class SnapshotMemory {
 public:
  // What a copy of `part` takes.
  static int64_t bytes_for(const StateDict& part);

  // Has a block of so many bytes ready, unless there is one, or one in use that will be back. Takes as long as the
  // system needs for fresh memory; where it has none, copies will do without.
  void prepare(int64_t bytes);

  // The same tensors with elements of their own, copied by the calling thread: into the prepared block if it is free
  // and large enough, else into fresh memory. The tensors share one block, which is back when the last of them is gone;
  // the largest that comes back is kept. They are only to be read.
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
