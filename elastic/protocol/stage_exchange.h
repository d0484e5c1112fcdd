#pragma once
// Tensor and pipeline parallelism: the messages between the stages of a model replica while they compute rank gradients
// together. Each pass of a stage needs the value, or the gradient, that the stage before it gives; and every member may
// need the digests of all tensors of a rank gradient. If the generation has agreed on a group of GPUs, the elements of
// values and gradients go through it, and messages announce them. A fence or another generation ends the rank gradients
// of the step, which are then computed again.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "elastic/protocol/member_outbox.h"
#include "elastic/protocol/model_replica.h"

namespace elinvar {

class StageExchange {
 public:
  StageExchange(const MemberPosition& position, const ModelReplica& replica, MemberOutbox& outbox)
      : position_(position), replica_(replica), outbox_(outbox) {}

  // --- Called by the loop.
  void begin(bool in_group = false);  // the rank gradients of a step begin; the group carries values between stages
  bool in_group() const { return in_group_; }
  bool going() const;  // false: they are over, and were not finished
  void end() { begun_.reset(); }
  // A transfer through the group of what `pass` gives. This member sends it to the members `to`, or gets it `from` a
  // member, or takes no part.
  struct Transfer {
    PipelinePass pass;
    std::vector<int> to = {};
    int from = -1;
  };
  // Returns the transfers of the replica for these virtual ranks, in the order in which each member makes its own. No
  // members wait for each other if each, after a pass, makes those up to that of what the pass gives, also where it
  // takes no part in that one, and before a pass those up to that of its input.
  std::vector<Transfer> transfers(const std::vector<int>& vranks) const;
  // Sends what a pass has given, whose vrank, run and direction it names, to those of the next stage that are to get it
  // from this member.
  void send(messages::BoundaryValue value);
  // Returns and removes the input of a pass, once it is there. Reports the sender of a value of another shape or type.
  using Fits = std::function<bool(const Shape& shape, DType dtype)>;
  std::optional<messages::BoundaryValue> take(const PipelinePass& pass, const Fits& fits);
  // Sends the digests of the tensors that this member has computed of a rank gradient to the others of the replica.
  void send(messages::GradientDigests digests);
  // Returns and removes those of the other members, by their indexes, once all are there. `samples`: whether the
  // virtual rank has any, and so tensors. Reports a member that sent another number of digests.
  std::optional<std::map<int, messages::GradientDigests>> take_digests(int vrank, bool samples);
  std::string missing() const;  // what the loop waits for, for people; "": nothing

  // --- Called by the member.
  void receive(const Message& message, const messages::BoundaryValue& value);
  void receive(const Message& message, const messages::GradientDigests& digests);
  void prune();  // drops what no longer counts

 private:
  struct At {
    int64_t generation = 0, step = 0;
    auto operator<=>(const At&) const = default;
  };
  bool counts(const At& at) const;
  int sender_to(const PipelineRun& from, int position) const;
  int index_of_sender(const PipelinePass& pass) const;

  const MemberPosition& position_;
  const ModelReplica& replica_;
  MemberOutbox& outbox_;
  std::optional<At> begun_;
  bool in_group_ = false;
  std::optional<PipelinePass> awaited_;  // take() did not find its input
  std::optional<int> undigested_;        // take_digests() did not find those of this virtual rank
  std::map<std::tuple<At, int, int, bool, PeerId>, messages::BoundaryValue> values_;
  std::map<std::tuple<At, int>, std::map<PeerId, messages::GradientDigests>> digests_;
};

}  // namespace elinvar
