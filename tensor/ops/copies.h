#pragma once
// Copies many tensors. A GPU does so in few launches (cuda/many.h).
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

struct CopiesArgs {
  const void* from;
  void* to;
  int64_t bytes;
};
void copies(CpuStream&, std::span<const CopiesArgs>);
template <class B>
void copies(GpuStream<B>&, std::span<const CopiesArgs>);

// Copies contiguous tensors that are on one device.
std::vector<Tensor> copies(const std::vector<Tensor>& of);

}  // namespace elinvar
