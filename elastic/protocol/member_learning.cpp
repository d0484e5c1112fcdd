// A member: the state and the results that a newcomer gets, and gives when it is none any more.
#include "elastic/protocol/member.h"

#include <algorithm>

namespace elinvar {

StateLoad Member::take_load() { return catching_up_.load(); }

void Member::loaded(const StateLoad& load) {
  if (active() || !catching_up_.is_current(load)) return;
  completed_ = step_ = load.step;
  scaling_state_.reset();
  if (adaptive()) {
    steps_ = kUnknown;
    set_made(load.scaling_state);
    if (load.end) steps_ = *load.end;
    if (load.restore) facts_.forget();  // what is not on file is to be done again, and may become different
  }
  last_values_.clear();
  last_trailer_.reset();
  loaded_ = true;
  std::erase_if(early_, [&](const Message& m) { return m.step < completed_; });
  if (load.restore) {
    ready_told_ = true;
    report(messages::Ready{.attempt = 0});
  }
}

void Member::cannot_load(const StateLoad& load) {
  if (active() || !catching_up_.is_current(load)) return;
  catching_up_.cannot_restore();
  report(messages::Blind{});
}

void Member::receive_state(int64_t step, const messages::StatePieces& pieces) {
  if (active()) return;
  const CatchingUp::Took took = catching_up_.take(step, pieces);
  if (took == CatchingUp::Took::dropped) return;
  if (took == CatchingUp::Took::first_piece) {
    loaded_ = ready_told_ = false;
    exchange_.reset();
  }
  // What the feeder could not get rid of may be on nobody's file: now two know it.
  if (!pieces.facts.empty()) facts_.adopt(pieces.facts);
}

// The exchange of one who waits for a result that others have.
void Member::listen() {
  if (!knows_layout()) return;
  if (!exchange_) {
    exchange_.emplace(options_.vranks, 0, -1, buckets_now(), gradients_);
    deliver_early();
  }
  if (active() && ahead_ != 0) {
    send(ahead_, messages::Fetch{options_.endpoint});
    ahead_ = 0;
  }
}

void Member::tell_ready() {
  if (ready_told_ || !early_.empty()) return;
  ready_told_ = true;
  report(messages::Ready{catching_up_.attempt()});
}

// To one that lacks the last result. It may be of a generation that this member does not know of yet.
void Member::give_last(const Message& m, const messages::Fetch& fetch) {
  if (!last_trailer_ || m.step != completed_ - 1) return;
  actions_.push_back({Action::What::connect, m.sender, fetch.endpoint, {}});
  give_copy(m.sender, m.step, /*attempt=*/0, last_values_, *last_trailer_);
}

// The result of a step that this member has. An attempt counts for a learner alone.
void Member::give_copy(PeerId to, int64_t step, int64_t attempt, const std::vector<Tensor>& values,
                       const messages::Trailer& trailer) {
  const auto copy = [&](Payload payload) {
    actions_.push_back(
        {Action::What::send, to, {}, {.generation = kCopy, .step = step, .payload = std::move(payload)}});
  };
  const Buckets* buckets = step == steps_ ? nullptr : &*buckets_;
  for (int b = 0; buckets && b < buckets->count(); ++b) {
    messages::BucketResult result = result_of(*buckets, b, values);
    result.attempt = attempt;
    copy(std::move(result));
  }
  messages::Trailer last = trailer;
  last.attempt = attempt;
  copy(std::move(last));
}

void Member::send_state(int64_t step, const messages::SendState& request) {
  // Of a boundary that has passed there is no copy to be had any more.
  if (!loaded_ || completed_ > step) return report(messages::Missed{request.peer});
  actions_.push_back({Action::What::connect, request.peer, request.endpoint, {}});
  const Transfer& transfer = transfers_[request.peer] = {step, request};
  if (step_ == step) give_part(transfer);
}

void Member::give_part(const Transfer& transfer) {
  const messages::SendState& request = transfer.request;
  StatePart part{.step = transfer.step,
                 .part = request.part,
                 .parts = request.parts,
                 .to = request.peer,
                 .attempt = request.attempt,
                 .scaling_state = made_,
                 .end = steps(),
                 .throttled = !fenced()};
  if (request.copies) part.facts = facts_.before(transfer.step);
  parts_.push_back(std::move(part));
}

}  // namespace elinvar
