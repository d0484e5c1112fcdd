#pragma once
// The state in parts: what each member saves of a checkpoint, or sends to a learner.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "elastic/protocol/member.h"
#include "tensor/digest_tree.h"
#include "tensor/state.h"

namespace elinvar {

// Part `part` of `parts`: the tensors in name order, split so that the parts have about the same number of bytes. Every
// tensor is in one of them; some may be empty. Views, no copies.
StateDict part_of(const StateDict& state, int part, int parts);

using TensorDigests = std::map<std::string, TensorDigest>;
TensorDigests digests_of(const StateDict& part);
// By name, the hex digits of a tensor's, and after them, if there are several, the short ones of its chunks.
std::map<std::string, std::string> to_text(const TensorDigests& digests);
// What these say of a whole state, its parts put together.
struct StateSum {
  Digest digest;
  StateDigests parts;
};
StateSum state_sum(const std::map<std::string, std::string>& digests);  // throws UsageError
StateSum state_sum(const TensorDigests& digests);                       // the same of what is here

// Gives `send` a part as messages of bounded size, at least one, made as they are sent. The first one has the facts
// and, with adaptive scaling, scaling state and end.
void send_state(const StateDict& tensors, const StatePart& part,
                const std::function<void(messages::StatePieces)>& send);

// Copies what the messages hold into the tensors of `state`, which must be those of the sender's by name and size, and
// compares the digests of the result. Throws Failure.
void fill(const StateDict& state, const std::vector<messages::StatePieces>& messages);

}  // namespace elinvar
