#pragma once
// The memory that a worker's passes take within a step, predicted from what the segments of its network need
// (elastic/ARRANGEMENT.md, "Memory"). Pure functions.
#include <cstdint>
#include <span>
#include <vector>

#include "tools/training/arrangement_estimate.h"

namespace elinvar {

// Returns, for each of `ranks` rank gradients of a model replica (one, if there are none), the most bytes of the device
// at a time while so many of them as come before it have ended and it has not: activations, gradients as they are made,
// and with ZeRO-3 parameters that are fetched, of a member in this place. The state and sums of gradients are not
// counted. `replica` has the places of the replica's members; others are ignored.
//
// With pipeline parallelism the passes are those of the stage in their order (elastic/step/pipeline.h), in which
// several rank gradients are between their passes.
//
// With ZeRO-2 gradients leave segment by segment, and with ZeRO-3 parameters come so; both need NetworkNeeds's
// first_readers.
std::vector<int64_t> pass_bytes(const NetworkNeeds& needs, std::span<const ReplicaPlace> replica,
                                const ReplicaPlace& place, int ranks, int zero);

}  // namespace elinvar
