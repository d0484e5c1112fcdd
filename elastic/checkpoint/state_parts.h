#pragma once
// The state in parts: what each member saves of a checkpoint, or sends to a learner.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/message.h"
#include "elastic/protocol/member.h"
#include "tensor/digest_tree.h"
#include "tensor/state.h"

namespace elinvar {

// Part `part` of `parts`: the tensors in name order, dealt so that the parts have about the same number of bytes. Every
// tensor is in one of them; some may be empty. Views, no copies.
StateDict part_of(const StateDict& state, int part, int parts);

using TensorDigests = std::map<std::string, TensorDigest>;
TensorDigests digests_of(const StateDict& part);
// As a message has them: {name: hex of the tensor's, and after it, if there are several, the short ones of its chunks}.
nlohmann::json to_json(const TensorDigests& digests);
// What such a message says of a whole state, its parts put together.
struct StateSum {
  Digest digest;
  StateDigests parts;
};
StateSum state_sum(const std::map<std::string, std::string>& digests);  // throws UsageError
StateSum state_sum(const TensorDigests& digests);                       // the same of what is here

// Gives `send` a part as messages of kind "state" of bounded size, at least one, made as they are sent.
//   body: part, parts, attempt, last: there are no more, digests {name: hex} of tensors that begin here,
//   pieces [[name, first element's byte offset]..]; in the first one pace and end, with adaptive scaling;
//   blobs: pieces; in the first one, after them, facts (elastic/protocol/told_facts.h)
void send_state(const StateDict& tensors, const StatePart& part, const std::function<void(Message)>& send);

// Copies what the messages hold into the tensors of `state`, which must be those of the sender's by name and size, and
// compares the digests of the result. Throws Failure.
void fill(const StateDict& state, const std::vector<Message>& messages);

}  // namespace elinvar
