#include "elastic/protocol/state_transfers.h"

#include <algorithm>
#include <utility>

#include "elastic/protocol/exchange.h"
#include "elastic/step/step.h"

namespace elinvar {

StateTransfers::StateTransfers(int64_t checkpoint_every, const MemberPosition& position, const GradientLayout& layout,
                               MemberOutbox& outbox, const FactsOutbox& facts, const ScalingProgress& scaling,
                               OptimizerShards& shards)
    : checkpoint_every_(checkpoint_every),
      position_(position),
      layout_(layout),
      outbox_(outbox),
      facts_(facts),
      scaling_(scaling),
      shards_(shards) {}

void StateTransfers::begin(int64_t step, const messages::SendState& request) {
  // A state before a boundary that has passed can no longer be copied.
  if (!position_.loaded || position_.completed > step) return outbox_.report(messages::Missed{request.peer});
  outbox_.connect(request.peer, request.endpoint);
  const Transfer& transfer = transfers_[request.peer] = {step, request};
  if (position_.step == step) give_part(transfer);
}

std::vector<messages::Learner> StateTransfers::learners() const {
  std::vector<messages::Learner> learners;
  for (const auto& [peer, transfer] : transfers_) learners.push_back({peer, transfer.request.endpoint});
  return learners;
}

bool StateTransfers::scheduled() const {
  const int64_t step = position_.step;
  return step <= position_.steps && (due(step, checkpoint_every_) || step == position_.steps);
}

bool StateTransfers::asked_to_save() const {
  const std::optional<Generation>& generation = position_.generation;
  return generation && generation->checkpoint && position_.step == generation->first_step;
}

// The last reduction has only a trailer and changes no state: the boundary after it is still that of `steps`.
void StateTransfers::save(bool attested) {
  if (!position_.active()) return;
  const int64_t step = std::min(position_.step, position_.steps);
  parts_.push_back({.step = step,
                    .part = position_.index,
                    .parts = position_.members(),
                    .to = 0,
                    .scaling_state = scaling_.made(),
                    .attested = attested,
                    .last = step == position_.steps || position_.generation->stop,
                    .zero = shards_.held_with(step),
                    .buckets = shards_.held_with(step) > 0 ? shards_.provides(step) : std::vector<int>()});
}

void StateTransfers::move() {
  for (OptimizerShards::Give& give : shards_.take_gives())
    parts_.push_back({.step = position_.step,
                      .to = give.to,
                      .zero = shards_.held_with(position_.step),
                      .buckets = std::move(give.buckets),
                      .move = true,
                      .generation = position_.number()});
}

void StateTransfers::at_boundary() {
  for (const auto& [peer, transfer] : transfers_)
    if (transfer.step == position_.step) give_part(transfer);
}

void StateTransfers::give_part(const Transfer& transfer) {
  const messages::SendState& request = transfer.request;
  StatePart part{.step = transfer.step,
                 .part = request.part,
                 .parts = request.parts,
                 .to = request.peer,
                 .attempt = request.attempt,
                 .scaling_state = scaling_.made(),
                 .end = position_.known_steps(),
                 .throttled = !position_.fenced(),
                 .zero = shards_.held_with(transfer.step)};
  if (request.copies) part.facts = facts_.before(transfer.step);
  parts_.push_back(std::move(part));
}

std::vector<StatePart> StateTransfers::take_parts() { return std::exchange(parts_, {}); }

// Results for others are in host memory: a device alone has no room for them in addition to the coming rank gradients.
void StateTransfers::completed(int64_t step, std::vector<Tensor> values, messages::Trailer trailer, bool kept) {
  if (layout_.sharded() && !values.empty()) std::fill_n(values.begin(), layout_.gradients(), Tensor());
  else if (kept && (position_.members() == 1 || any())) values = on_host(values);
  value_learners_.clear();
  for (const auto& [peer, transfer] : transfers_)
    if (transfer.request.copies && transfer.step <= step) {
      give_copy(peer, step, transfer.request.attempt, values, trailer, layout_.sharded());
      if (layout_.sharded() && layout_.whole_parameters() && step != position_.steps)
        value_learners_[peer] = transfer.request.attempt;
    }
  forget_result();
  if (!kept) return;
  last_sharded_ = layout_.sharded();
  last_values_ = std::move(values);
  last_trailer_ = std::move(trailer);
}

void StateTransfers::forget_result() {
  last_values_.clear();
  last_trailer_.reset();
}

void StateTransfers::give_result(const Message& m, const messages::Fetch& fetch) {
  if (!last_trailer_ || m.step != position_.completed - 1) return;
  outbox_.connect(m.sender, fetch.endpoint);
  give_copy(m.sender, m.step, /*attempt=*/0, last_values_, *last_trailer_, last_sharded_);
}

void StateTransfers::give_values(int bucket, const std::vector<Blob>& slices) {
  for (const auto& [peer, attempt] : value_learners_)
    outbox_.send(peer, kCopyGeneration, position_.completed - 1,
                 messages::BucketValues{.bucket = bucket, .slices = slices, .attempt = attempt});
}

// Only a learner needs the attempt.
void StateTransfers::give_copy(PeerId to, int64_t step, int64_t attempt, const std::vector<Tensor>& values,
                               const messages::Trailer& trailer, bool sharded) {
  const Buckets* const buckets = layout_.buckets_of(sharded);
  const bool tensors = step != position_.steps;
  for (int b = sharded ? layout_.gradient_shards() : 0; tensors && b < buckets->count(); ++b) {
    messages::BucketResult result = result_of(*buckets, b, values);
    result.attempt = attempt;
    outbox_.send(to, kCopyGeneration, step, std::move(result));
  }
  messages::Trailer last = trailer;
  last.attempt = attempt;
  outbox_.send(to, kCopyGeneration, step, std::move(last));
}

}  // namespace elinvar
