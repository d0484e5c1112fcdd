#pragma once
// The parts of an update. An update whose state is offloaded (nn/offload.h) goes through it part by part, so that
// little of it is in the device's memory at a time: while one part is updated, the next is on its way to the device
// and the one before on its way back. Any other update has one part. Parts cut no segment (NUMERICS.md, rule 19), so
// sums of segments are the same.
#include <functional>
#include <vector>

#include "nn/update_rule.h"

namespace elinvar {

struct UpdatePart {
  std::vector<Tensor> p, g;                // as in UpdatePieces
  std::vector<size_t> of;                  // indices of parameters
  std::vector<std::vector<Tensor>> slots;  // on the device of p: slots[k][i] belongs to p[i]
};

// How `update` uses the state: parts that are only read are not sent back.
enum class SlotUse { read, change };

// Calls `update` with each part in the order of the pieces. slots[k][i] is slot k of piece i, as `u.offload` placed it.
void update_in_parts(const UpdatePieces& u, const std::vector<std::vector<Tensor>>& slots, SlotUse use,
                     const std::function<void(UpdatePart&)>& update);

}  // namespace elinvar
