#pragma once
// Ranges for NVIDIA's profiler (NVTX), which shows GPU work under the names of ops and activities. They nest for each
// thread, and do nothing in builds without CUDA.

namespace elinvar {

void push_range(const char* name);
void pop_range();

}  // namespace elinvar
