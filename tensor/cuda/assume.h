#pragma once
// Tells the compiler a fact that callers have checked, so that a kernel has no code for other cases.
#include "tensor/cuda/kernel.h"

namespace elinvar {

__device__ inline void assume([[maybe_unused]] bool condition) {
#ifdef __CUDACC__
  __builtin_assume(condition);
#endif
}

}  // namespace elinvar
