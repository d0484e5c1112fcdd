// A member: the state and the results that a newcomer gets, and gives when it is none any more.
#include "elastic/protocol/member.h"

#include <algorithm>

namespace elinvar {

Member::Load Member::take_load() {
  Load load{.restore = restore_step_,
            .step = restore_step_ ? *restore_step_ : state_step_,
            .attempt = attempt_,
            .pieces = std::exchange(state_pieces_, {}),
            .pace = state_pace_,
            .end = restore_step_ ? std::nullopt : state_end_};
  state_whole_ = false;
  return load;
}

void Member::loaded(const Load& load) {
  if (active() || load.attempt != attempt_ || load.restore != restore_step_) return;
  completed_ = step_ = load.step;
  pace_.reset();
  if (adaptive()) {
    steps_ = kUnknown;
    set_made(load.pace);
    if (load.end) steps_ = *load.end;
    if (load.restore) unacknowledged_.clear();  // what is not on file is to be done again, and may become different
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

void Member::cannot_load(const Load& load) {
  if (active() || load.restore != restore_step_) return;
  restore_step_.reset();
  learns_ = true;
  report(messages::Blind{});
}

void Member::receive_state(int64_t step, const messages::StatePieces& pieces) {
  if (active() || pieces.attempt < attempt_) return;
  if (pieces.attempt > attempt_) {
    attempt_ = pieces.attempt;
    state_step_ = step;
    state_pace_ = pieces.pace.value_or(Pace{});
    state_end_ = pieces.end;
    state_pieces_.clear();
    state_seen_.clear();
    loaded_ = ready_told_ = false;
    restore_step_.reset();
    exchange_.reset();
  }
  // What the feeder could not get rid of may be on nobody's file: now two know it.
  if (!pieces.facts.empty()) unacknowledged_ = {pieces.facts.begin(), pieces.facts.end()};
  if (pieces.last) state_seen_.insert(pieces.part);
  state_whole_ = static_cast<int>(state_seen_.size()) == pieces.parts;
  state_pieces_.push_back(pieces);
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
  report(messages::Ready{attempt_});
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

void Member::feed(int64_t step, const messages::Feed& feed) {
  // Of a boundary that has passed there is no copy to be had any more.
  if (!loaded_ || completed_ > step) return report(messages::Missed{feed.peer});
  actions_.push_back({Action::What::connect, feed.peer, feed.endpoint, {}});
  const Feeding& feeding = feeds_[feed.peer] = {step, feed};
  if (step_ == step) give_part(feeding);
}

void Member::give_part(const Feeding& feeding) {
  const messages::Feed& feed = feeding.feed;
  StatePart part{.step = feeding.step,
                 .part = feed.part,
                 .parts = feed.parts,
                 .to = feed.peer,
                 .attempt = feed.attempt,
                 .pace = made_,
                 .end = steps(),
                 .gently = !fenced()};
  if (feed.copies)
    for (const ToldFacts& facts : unacknowledged_)
      if (facts.step < feeding.step) part.facts.push_back(facts);
  parts_.push_back(std::move(part));
}

}  // namespace elinvar
