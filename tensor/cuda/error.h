#pragma once
// What CUDA's runtime answers. A kernel fails when something later waits for it, so that a message names those that
// were started last.
#include <cuda_runtime.h>

namespace elinvar {

// Throws Failure with what was being done if the answer is an error.
void require(cudaError_t answer, const char* doing);

}  // namespace elinvar
