// A member: what it says and is told.
#include "elastic/protocol/member.h"

namespace elinvar {

using Json = nlohmann::json;

namespace {

constexpr size_t kMostEarly = 1 << 16;  // messages for an exchange that is not there yet
constexpr size_t kMostTold = 64;        // steps whose facts one message has

}  // namespace

void Member::send(PeerId peer, Message message) {
  message.generation = generation();
  message.step = completed_;
  actions_.push_back({Action::What::send, peer, {}, std::move(message)});
}

void Member::report(Message message) {
  message.generation = generation();
  message.step = completed_;
  if (coordinator_ != 0) actions_.push_back({Action::What::send, coordinator_, {}, std::move(message)});
}

Exchange::Send Member::sender() {
  return [this](int member, Message message) {
    send(generation_->members[static_cast<size_t>(member)].peer, std::move(message));
  };
}

void Member::introduce(PeerId coordinator, Json about) {
  coordinator_ = coordinator;
  about["active"] = active();
  about["loaded"] = loaded_;
  about["promised"] = promised_;
  about["warm"] = knows_layout();
  about["ready"] = ready_told_;
  about["attempt"] = attempt_;
  about["draining"] = draining_;
  if (active()) about["id"] = id();
  about["learners"] = Json::array();  // whom no record names: a later coordinator knows of them by this alone
  for (const auto& [peer, feed] : feeds_) about["learners"].push_back({{"peer", peer}, {"endpoint", feed.endpoint}});
  report({.kind = "hello", .body = std::move(about)});
  if (me_ == 0) report_facts();
}

// All that the coordinator has not confirmed of the steps after `after`, since the leader that told of them may be
// gone: in this message, and in others what it has no room for.
void Member::report_facts(int64_t after, Message message) {
  for (const ToldFacts& facts : unacknowledged_) {
    if (facts.step <= after) continue;
    if (message.blobs.size() == kMostTold) report(std::exchange(message, {.kind = "facts"}));
    add_facts(message, facts);
  }
  if (message.kind != "facts" || !message.blobs.empty()) report(std::move(message));
  told_ = step_ - 1;
}

// Of several steps at once, as each message wakes six threads: what it costs is by the second, not by the step.
void Member::tell_facts() {
  if (me_ == 0) report_facts(told_);
}

void Member::heartbeat(const Json& about) {
  Message alive{.kind = "alive", .body = about};
  if (me_ == 0) report_facts(told_, std::move(alive));
  else report(std::move(alive));
  if (evidence_) report(*evidence_);  // whoever coordinates now may not have it
  if (group_trouble_) report(*group_trouble_);
}

void Member::drain() {
  draining_ = true;
  report({.kind = "drain"});
}

// The run ends with it, whoever leads.
void Member::failed(Json body) {
  report_facts();
  report({.kind = "failed", .body = std::move(body)});
}

void Member::give_up(const std::string& reason) { outcome_ = {"alone", reason, false}; }

void Member::lost(PeerId peer, const std::string& reason) {
  if (peer == coordinator_) return;  // elastic/session/watch.h
  feeds_.erase(peer);
  const bool fellow = generation_ && generation_->index_of(peer) >= 0;
  if (fellow || !active()) report({.kind = "suspect", .body = {{"peer", peer}, {"reason", reason}}});
}

void Member::receive(const Message& m) {
  const Json& body = m.body;
  if (Exchange::takes(m.kind)) {
    receive_data(m);
  } else if (m.kind == "fetch") {
    give_last(m);
  } else if (m.kind == "group") {
    group_called(m);
  } else if (m.kind == "group_again") {
    if (m.generation == generation() && me_ == 0) form_anew(m.generation);
  } else if (m.kind == "state") {
    receive_state(m);
  } else if (m.sender != coordinator_) {
    return;  // it was the coordinator once, and may not know that it is no more
  } else if (m.kind == "fence") {
    fenced_by(m);
  } else if (m.kind == "start") {
    start(body);
  } else if (m.kind == "propose") {
    propose(generation_from(body));
  } else if (m.kind == "welcome") {
    if (active()) return;
    learns_ = !body.contains("restore");
    if (learns_) return;
    const int64_t step = body.at("restore").get<int64_t>();
    if (restore_step_ != step) {  // whatever it has learnt, nobody goes on with
      restore_step_ = step;
      loaded_ = state_whole_ = ready_told_ = false;
      exchange_.reset();
      early_.clear();
    } else if (loaded_) {  // as it told a coordinator that is no more
      report({.kind = "ready", .body = {{"attempt", 0}}});
    }
  } else if (m.kind == "refused") {
    outcome_ = {"refused", body.at("reason").get<std::string>(), body.value("again", false)};
  } else if (m.kind == "release") {
    if (outcome_) return;  // the first word on it stands: who is refused gets no second answer
    outcome_ = {body.at("what").get<std::string>(), body.at("reason").get<std::string>(), body.value("again", false)};
  } else if (m.kind == "ack") {
    while (!unacknowledged_.empty() && unacknowledged_.front().step <= m.step) unacknowledged_.pop_front();
  } else if (m.kind == "feed") {
    feed(body.at("peer").get<PeerId>(), {.step = m.step,
                                         .part = body.at("part").get<int>(),
                                         .parts = body.at("parts").get<int>(),
                                         .attempt = body.at("attempt").get<int64_t>(),
                                         .copies = body.at("copies").get<bool>(),
                                         .endpoint = body.at("endpoint").get<std::string>()});
  } else if (m.kind == "unfeed") {
    feeds_.erase(body.at("peer").get<PeerId>());
  }
}

void Member::receive_data(const Message& m) {
  const bool to_active = active() && !fenced() && completed_ >= generation_->first_step;
  const int64_t expected = to_active ? generation_->number : kCopy;
  // Copies for a learner belong to one attempt to feed it: those of an earlier one could lead past what its new feeder
  // knows, and past the trailer that makes it active.
  const int64_t attempt = m.generation == kCopy && !active() ? m.body.value("attempt", int64_t{0}) : attempt_;
  if (attempt < attempt_) return;
  if (exchange_ && m.step == completed_ && m.generation == expected && attempt == attempt_) {
    const std::string wrong = exchange_->receive(m, sender());
    if (!wrong.empty())
      report(
          {.kind = "suspect", .body = {{"peer", m.sender}, {"reason", "sent a malformed " + m.kind + ": " + wrong}}});
    return;
  }
  if (m.generation != kCopy && m.generation < std::max(promised_, generation())) return;
  if ((loaded_ && m.step < completed_) || early_.size() >= kMostEarly) return;
  early_.push_back(m);
}

void Member::deliver_early() {
  std::vector<Message> early = std::exchange(early_, {});
  for (const Message& m : early) receive_data(m);
}

std::string Member::missing() const { return exchange_ ? exchange_->missing() : ""; }

std::vector<Action> Member::take_actions() { return std::exchange(actions_, {}); }
std::vector<StatePart> Member::take_parts() { return std::exchange(parts_, {}); }

}  // namespace elinvar
