#pragma once
// Keeps the inputs of recomputed blocks (nn/recompute.h) in a file or in the host's memory between the passes
// (nn/offload.h). This decides no bit. A GPU's inputs are copied to the host while the forward pass goes on. In the
// backward pass, the input of the block before is copied back while a block runs.
#include <deque>
#include <functional>
#include <memory>

#include "nn/offload.h"

namespace elinvar {

class InputStore {
 public:
  explicit InputStore(Offload offload);
  ~InputStore();

  // Stores an input. The result brings it back, once; without that it is dropped with the result. The elements must not
  // change from now on. Throws Failure if there is no room.
  std::function<Tensor()> put(Tensor input);

 private:
  struct Stored;
  struct Files;

  const Offload offload_;
  std::shared_ptr<Files> files_;  // shared with the tensors in them
  std::weak_ptr<Stored> newest_;
  std::deque<std::weak_ptr<Stored>> leaving_;  // those whose copies may not be done
};

}  // namespace elinvar
