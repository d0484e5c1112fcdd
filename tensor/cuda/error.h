#pragma once
// Errors of CUDA's runtime. The error of a kernel appears when something later waits for it, so messages name the
// kernels that were started last.
#include <cuda_runtime.h>

namespace elinvar {

// Throws Failure, which says what was being done, if the answer is an error.
void require(cudaError_t answer, const char* doing);

}  // namespace elinvar
