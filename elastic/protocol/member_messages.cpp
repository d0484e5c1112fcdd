// A member: what it says and is told.
#include "elastic/protocol/member.h"

namespace elinvar {
namespace {

constexpr size_t kMostEarly = 1 << 16;  // messages for an exchange that is not there yet

}  // namespace

void Member::send(PeerId peer, Payload payload) {
  actions_.push_back(
      {Action::What::send, peer, {}, {.generation = generation(), .step = completed_, .payload = std::move(payload)}});
}

void Member::report(Payload payload) {
  if (coordinator_ != 0) send(coordinator_, std::move(payload));
}

void Member::suspect(PeerId peer, const std::string& reason) { report(messages::Suspect{peer, reason}); }

Exchange::Send Member::sender() {
  return [this](int member, Payload payload) {
    send(generation_->members[static_cast<size_t>(member)].peer, std::move(payload));
  };
}

void Member::introduce(PeerId coordinator, const WorkerInfo& about) {
  coordinator_ = coordinator;
  messages::Hello hello{.about = about,
                        .active = active(),
                        .loaded = loaded_,
                        .warm = knows_layout(),
                        .ready = ready_told_,
                        .attempt = catching_up_.attempt(),
                        .promised = promised_,
                        .draining = draining_,
                        .id = id()};
  for (const auto& [peer, transfer] : transfers_) hello.learners.push_back({peer, transfer.request.endpoint});
  report(std::move(hello));
  if (me_ == 0) report_facts();
}

void Member::report(std::vector<TellsFacts> facts) {
  for (TellsFacts& told : facts) report(messages::Facts{std::move(told)});
}

void Member::report_facts() { report(facts_.all(step_)); }

// Of several steps at once, as each message wakes six threads: what it costs is by the second, not by the step.
void Member::tell_facts() {
  if (me_ == 0) report(facts_.untold(step_));
}

void Member::heartbeat(messages::Alive alive) {
  if (me_ == 0) {
    std::vector<TellsFacts> facts = facts_.untold(step_);
    if (!facts.empty()) {
      alive.told = std::move(facts.back());
      facts.pop_back();
    }
    report(std::move(facts));
  }
  report(std::move(alive));
  if (evidence_) report(messages::Audit{*evidence_});  // whoever coordinates now may not have it
  if (group_trouble_) report(messages::GroupFailed{*group_trouble_});
}

void Member::drain() {
  draining_ = true;
  report(messages::Drain{});
}

void Member::failed(const std::string& reason, int exit_code) {
  report_facts();
  report(messages::Failed{.reason = reason, .exit_code = exit_code});
}

void Member::give_up(const std::string& reason) { outcome_ = {"alone", reason, false}; }

void Member::lost(PeerId peer, const std::string& reason) {
  if (peer == coordinator_) return;  // elastic/session/watch.h
  transfers_.erase(peer);
  const bool fellow = generation_ && generation_->index_of(peer) >= 0;
  if (fellow || !active()) suspect(peer, reason);
}

void Member::receive(const Message& m) {
  if (Exchange::takes(m)) return receive_data(m);
  std::visit(Overloaded{[&](const messages::Fetch& fetch) { give_last(m, fetch); },
                        [&](const messages::GroupName& name) { group_called(m, name); },
                        [&](const messages::GroupAgain&) {
                          if (m.generation == generation() && me_ == 0) form_anew(m.generation);
                        },
                        [&](const messages::StatePieces& pieces) { receive_state(m.step, pieces); },
                        [&](const auto&) {
                          if (m.sender == coordinator_) obey(m);
                        }},
             m.payload);
}

// Who was the coordinator once, and may not know that it is no more, is not listened to.
void Member::obey(const Message& m) {
  std::visit(Overloaded{[&](const messages::Fence&) { fenced_by(m.generation); },
                        [&](const messages::Start& told) { start(told); },
                        [&](const messages::Propose& told) { propose(told.record); },
                        [&](const messages::Welcome& told) { welcome(told); },
                        [&](const messages::Refused& told) {
                          outcome_ = {"refused", told.reason, told.again};
                        },
                        [&](const messages::Release& told) {
                          // The first word on it stands: who is refused gets no second answer.
                          if (!outcome_) outcome_ = {told.what, told.reason, told.again};
                        },
                        [&](const messages::Ack&) { facts_.confirm(m.step); },
                        [&](const messages::SendState& told) { send_state(m.step, told); },
                        [&](const messages::StopSending& told) { transfers_.erase(told.peer); },
                        [](const auto&) {}},  // nothing that a coordinator tells a member
             m.payload);
}

void Member::welcome(const messages::Welcome& told) {
  if (active()) return;
  if (!told.restore) return catching_up_.learn();
  if (catching_up_.restore(*told.restore)) {  // whatever it has learnt, nobody goes on with
    loaded_ = ready_told_ = false;
    exchange_.reset();
    early_.clear();
  } else if (loaded_) {  // as it told a coordinator that is no more
    report(messages::Ready{.attempt = 0});
  }
}

void Member::receive_data(const Message& m) {
  const bool to_active = active() && !fenced() && completed_ >= generation_->first_step;
  const int64_t expected = to_active ? generation_->number : kCopy;
  // Copies for a learner belong to one attempt to request it: those of an earlier one could lead past what its new
  // feeder knows, and past the trailer that makes it active.
  const int64_t current = catching_up_.attempt();
  const int64_t attempt = m.generation == kCopy && !active() ? Exchange::attempt_of(m) : current;
  if (attempt < current) return;
  if (exchange_ && m.step == completed_ && m.generation == expected && attempt == current) {
    const std::string wrong = exchange_->receive(m, sender());
    if (!wrong.empty()) suspect(m.sender, fmt::format("sent a malformed {}: {}", kind_of(m.payload).name, wrong));
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
