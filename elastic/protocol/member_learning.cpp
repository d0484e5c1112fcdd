// A member: the state and the results that a newcomer gets, and gives when it is none any more.
#include "elastic/protocol/member.h"

#include <algorithm>

namespace elinvar {

using Json = nlohmann::json;

Member::Load Member::take_load() {
  Load load{.restore = restore_step_,
            .step = restore_step_ ? *restore_step_ : state_step_,
            .attempt = attempt_,
            .messages = std::exchange(state_messages_, {}),
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
    report({.kind = "ready", .body = {{"attempt", 0}}});
  }
}

void Member::cannot_load(const Load& load) {
  if (active() || load.restore != restore_step_) return;
  restore_step_.reset();
  learns_ = true;
  report({.kind = "blind"});
}

void Member::receive_state(const Message& m) {
  const int64_t attempt = m.body.at("attempt").get<int64_t>();
  if (active() || attempt < attempt_) return;
  if (attempt > attempt_) {
    attempt_ = attempt;
    state_step_ = m.step;
    state_pace_ = m.body.contains("pace") ? pace_from(m.body["pace"]) : Pace{};
    state_end_ = m.body.contains("end") ? std::optional(m.body["end"].get<int64_t>()) : std::nullopt;
    state_messages_.clear();
    state_seen_.clear();
    loaded_ = ready_told_ = false;
    restore_step_.reset();
    exchange_.reset();
  }
  // What the feeder could not get rid of may be on nobody's file: now two know it.
  if (const std::vector<ToldFacts> facts = facts_in(m); !facts.empty()) unacknowledged_ = {facts.begin(), facts.end()};
  state_messages_.push_back(m);
  if (m.body.at("last").get<bool>()) state_seen_.insert(m.body.at("part").get<int>());
  state_whole_ = static_cast<int>(state_seen_.size()) == m.body.at("parts").get<int>();
}

// The exchange of one who waits for a result that others have.
void Member::listen() {
  if (!knows_layout()) return;
  if (!exchange_) {
    exchange_.emplace(options_.vranks, 0, -1, buckets_now(), gradients_);
    deliver_early();
  }
  if (active() && ahead_ != 0) {
    send(ahead_, {.kind = "fetch", .body = {{"endpoint", options_.endpoint}}});
    ahead_ = 0;
  }
}

void Member::tell_ready() {
  if (ready_told_ || !early_.empty()) return;
  ready_told_ = true;
  report({.kind = "ready", .body = {{"attempt", attempt_}}});
}

// To one that lacks the last result. It may be of a generation that this member does not know of yet.
void Member::give_last(const Message& m) {
  if (!last_trailer_ || m.step != completed_ - 1) return;
  actions_.push_back({Action::What::connect, m.sender, m.body.at("endpoint").get<std::string>(), {}});
  give(m.step == steps_ ? nullptr : &*buckets_, last_values_, *last_trailer_, [&](Message copy) {
    copy.generation = kCopy;
    copy.step = m.step;
    actions_.push_back({Action::What::send, m.sender, {}, std::move(copy)});
  });
}

void Member::feed(PeerId peer, const Feed& feed) {
  // Of a boundary that has passed there is no copy to be had any more.
  if (!loaded_ || completed_ > feed.step) {
    report({.kind = "missed", .body = {{"peer", peer}}});
    return;
  }
  actions_.push_back({Action::What::connect, peer, feed.endpoint, {}});
  feeds_[peer] = feed;
  if (step_ == feed.step) give_part(peer, feed);
}

void Member::give_part(PeerId peer, const Feed& feed) {
  StatePart part{.step = feed.step,
                 .part = feed.part,
                 .parts = feed.parts,
                 .to = peer,
                 .attempt = feed.attempt,
                 .pace = made_,
                 .end = steps(),
                 .gently = !fenced()};
  if (feed.copies)
    for (const ToldFacts& facts : unacknowledged_)
      if (facts.step < feed.step) part.facts.push_back(facts);
  parts_.push_back(std::move(part));
}

}  // namespace elinvar
