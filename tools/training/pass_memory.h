#pragma once
// The memory that a worker's passes take within a step, predicted from what the segments of its network need
// (elastic/ARRANGEMENT.md, "Memory"). Pure functions.
#include <cstdint>
#include <span>
#include <vector>

#include "tools/training/arrangement_estimate.h"

namespace elinvar {

// Returns the peak bytes of the device that the passes of a member in this place need. Element i is the peak between
// the end of rank gradient i - 1 and the end of rank gradient i, for `ranks` rank gradients of a model replica, at
// least one. The bytes are of activations, of gradients while they are made, and of parameters that ZeRO-3 fetches. The
// state and sums of gradients are not counted. `replica` has the places of the replica's members; others are ignored.
//
// A stage of a pipeline runs its passes in the order of elastic/step/pipeline.h, so several rank gradients can be
// between their two passes.
//
// ZeRO-2 sends gradients segment by segment, and ZeRO-3 also fetches parameters segment by segment. Both need
// NetworkNeeds::first_readers.
std::vector<int64_t> pass_bytes(const NetworkNeeds& needs, std::span<const ReplicaPlace> replica,
                                const ReplicaPlace& place, int ranks, int zero);

}  // namespace elinvar
