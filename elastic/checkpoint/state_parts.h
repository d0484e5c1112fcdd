#pragma once
// The state in parts: each member saves one for a checkpoint, or sends one to a learner.
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "elastic/protocol/member.h"
#include "tensor/digest_tree.h"
#include "tensor/state.h"
#include "tensor/state_slice.h"

namespace elinvar {

// Returns views of part `part` of `parts`: the tensors in name order, split so that the parts have about the same
// number of bytes. Every tensor is in exactly one part; some parts may be empty.
StateDict part_of(const StateDict& state, int part, int parts);

using TensorDigests = std::map<std::string, TensorDigest>;
TensorDigests digests_of(const StateDict& part);
// Returns, by name, the hexadecimal digits of a tensor's digest, followed, if it has several chunks, by their short
// digests.
std::map<std::string, std::string> to_text(const TensorDigests& digests);
// The digests of a whole state, computed from those of its parts.
struct StateSum {
  Digest digest;
  StateDigests parts;
};
StateSum state_sum(const std::map<std::string, std::string>& digests);  // throws UsageError
StateSum state_sum(const TensorDigests& digests);                       // takes digests of this process
// The same of a state whose other tensors are in slices. Throws Failure, with the name of the tensor or of the slice,
// unless there is each tensor once and each of its chunks once.
StateSum state_sum(const std::map<std::string, std::string>& whole, std::span<const SliceDigests> slices);
StateSum state_sum(const TensorDigests& whole, std::span<const SliceDigests> slices);
// Returns the digests of tensors from those of their slices, in any order. Throws Failure likewise.
TensorDigests joined(std::span<const SliceDigests> slices);

// Passes a part to `send` as messages of bounded size, at least one, each made when it is sent. The first message has
// the facts and, with adaptive scaling, the scaling state and the last step.
void send_state(const StateDict& tensors, const StatePart& part,
                const std::function<void(messages::StatePieces)>& send);

// Copies the contents of the messages into the tensors of `state`, which must have the sender's names and sizes, and
// compares the digests of the result. Throws Failure.
void fill(const StateDict& state, const std::vector<messages::StatePieces>& messages);

}  // namespace elinvar
