#pragma once
// The memory of a worker's process besides that of a process which has only run the passes of its network.
#include <cstdint>

namespace elinvar {

// Returns the bytes of what only workers have: the stacks of their threads, with the thread-local variables of this
// program (those of emulated GPUs take 0.4 MB a thread), with `readers` threads that read data; code of the transport
// and of the session; and the rest of the last page of the heap of tensors.
int64_t worker_bytes(int readers);

}  // namespace elinvar
