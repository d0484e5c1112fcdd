#pragma once
// The identity of a process in a job.
#include <cstdint>

namespace elinvar {

// Identifies a process of a job from its start to its end. It is random and never reused: a process that comes back is
// another peer.
using PeerId = uint64_t;

}  // namespace elinvar
