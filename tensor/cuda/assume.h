#pragma once
// What callers have checked, for the compiler: a kernel then has no code for anything else.
#include "tensor/cuda/kernel.h"

namespace elinvar {

__device__ inline void assume([[maybe_unused]] bool condition) {
#ifdef __CUDACC__
  __builtin_assume(condition);
#endif
}

}  // namespace elinvar
