// The coordinator: newcomers, from their hello until they have caught up.
#include "elastic/protocol/coordinator.h"

#include <algorithm>
#include <utility>

namespace elinvar {

using State = Worker::State;

void Coordinator::hello(const Message& m, const messages::Hello& hello, Seconds now) {
  actions_.push_back({Action::What::connect, m.sender, hello.about.endpoint, {}});
  std::string reason = gone_.contains(m.sender) ? "it was evicted before" : world_.refuse(hello);
  // Those of the newest record, or of the one before if it is not known yet whether the planned change took place.
  const bool of_this = current_ && (current_->index_of(m.sender) >= 0 ||
                                    (phase_ == Phase::gathering && m.generation == current_->follows));
  bool again = gone_.contains(m.sender) && !unwanted_.contains(m.sender);
  if (hello.active && reason.empty() && !of_this) {
    reason = "it belongs to a generation that is over";
    again = true;
  }
  if (!reason.empty()) {
    world_.event("refused", {{"peer", m.sender}, {"reason", reason}});
    return send(m.sender, messages::Refused{.reason = reason, .again = again});
  }
  Worker& worker = workers_[m.sender];
  const bool known = worker.peer != 0;
  worker.peer = m.sender;
  worker.endpoint = hello.about.endpoint;
  worker.about = hello.about;
  worker.about.gradient = worker.about.state = {};  // long; whoever opens the run reads them
  worker.seen = now;
  worker.completed = m.step;
  worker.generation = m.generation;
  worker.blind = worker.welcomed = false;
  worker.warm = hello.warm;
  number_ = std::max({number_, hello.promised, m.generation});
  worker.draining = worker.draining || hello.draining;
  if (hello.active) {
    for (const messages::Learner& learner : hello.learners)
      if (!workers_.contains(learner.peer) && !gone_.contains(learner.peer)) call(learner.peer, learner.endpoint);
    worker.state = State::member;
    worker.id = hello.id;
    next_id_ = std::max(next_id_, worker.id + 1);
    if (fence_targets_.contains(m.sender) && phase_ == Phase::fencing)
      return send(m.sender, messages::Fence{}, number_);
    if (phase_ == Phase::fencing || phase_ == Phase::holding) return fence("a member has come back", now);
    if (proposal_ && phase_ == Phase::running && m.generation == proposal_->number) switched(now);
    return tick(now);
  }
  if (known && phase_ != Phase::starting && worker.state != State::joining) {
    const bool caught_up = hello.ready && hello.attempt == worker.attempt;
    if (worker.state == State::receiving && caught_up) ready(worker, now);
    return;
  }
  if (known && worker.state == State::member) return;
  worker.state = State::joining;
  world_.event("hello",
               {{"peer", worker.peer}, {"endpoint", worker.endpoint}, {"environment", hello.about.environment}});
  if (phase_ == Phase::starting) {
    // With adaptive scaling others may have come to another state after as many steps.
    if (hello.loaded && m.step == first_step_ && !adaptive()) {
      worker.state = State::ready;
      return begin_generation_of_starters(now);
    }
    return send(worker.peer, messages::Welcome{.restore = first_step_});
  }
  send_state_to_joiners();
}

// One that restored the first state is ready only for the first generation; later it has to learn.
void Coordinator::ready(Worker& worker, const Message& m, const messages::Ready& told, Seconds now) {
  worker.completed = m.step;  // less than before, where it was told to restore an earlier state
  if (phase_ == Phase::starting ? told.attempt == 0
                                : worker.state == State::receiving && told.attempt == worker.attempt)
    ready(worker, now);
}

// The step that a member was to give a learner its state at has passed there.
void Coordinator::missed(const messages::Missed& missed) {
  const auto learner = workers_.find(missed.peer);
  if (learner != workers_.end() && learner->second.state == State::receiving) learner->second.state = State::joining;
  send_state_to_joiners();
}

void Coordinator::ready(Worker& worker, Seconds now) {
  worker.state = State::ready;
  world_.event("ready", {{"peer", worker.peer}, {"step", worker.completed}});
  if (phase_ == Phase::starting) begin_generation_of_starters(now);
  else if (phase_ == Phase::holding) fence("a worker has come", now);
  else maybe_propose(now);
}

// After a death the member that sends a learner the state may be the one that is gone.
void Coordinator::restart_learners() {
  for (auto& [peer, w] : workers_)
    if (w.state == State::receiving) w.state = State::joining;
  send_state_to_joiners();
}

void Coordinator::send_state_to_joiners() {
  if ((phase_ != Phase::running && phase_ != Phase::holding) || (final_ && phase_ == Phase::running)) return;
  std::vector<PeerId> leaving;
  for (auto& [peer, w] : workers_) {
    if (w.state == State::joining && w.draining) leaving.push_back(peer);
    else if (w.state == State::joining) welcome(w);
  }
  for (const PeerId peer : leaving) dismiss(peer);
}

// State is sent to it when it is warm, so that others have no work with it, and results do not wait for it, while it
// touches all of its memory first; but at once where nobody can go on without it.
void Coordinator::welcome(Worker& worker) {
  if (!std::exchange(worker.welcomed, true)) send(worker.peer, messages::Welcome{});
  if (worker.warm || phase_ == Phase::holding) send_state(worker);
}

// Whether it can leave at once: it is no member, nor about to be, and the others do not need the state that it has.
bool Coordinator::dismissible(const Worker& worker) const {
  if (phase_ == Phase::holding) return worker.state == State::joining || worker.state == State::receiving;
  return phase_ == Phase::running && !concerned(worker);
}

void Coordinator::dismiss(PeerId peer) {
  const auto worker = workers_.find(peer);
  send(peer, messages::Release{.what = "left", .reason = "it was asked to leave"});
  world_.event("left", {{"worker", worker->second.id}, {"peer", peer}});
  gone_.emplace(peer, worker->second.endpoint);
  unwanted_.insert(peer);
  fence_targets_.erase(peer);
  const bool learner = worker->second.state != State::leaving;
  workers_.erase(worker);
  if (learner) stop_sending(peer);
}

void Coordinator::send_state(Worker& worker) {
  std::vector<PeerId> feeders;
  const int64_t now = completed();
  if (phase_ == Phase::running && now > options_.steps) return;  // there is no boundary to come
  for (const auto& [peer, w] : workers_)
    if (phase_ == Phase::holding ? w.state != State::joining && fence_targets_.contains(peer) && w.completed == now
                                 : w.state == State::member)
      feeders.push_back(peer);
  if (feeders.empty()) return;
  std::stable_partition(feeders.begin(), feeders.end(), [&](PeerId peer) { return !workers_.at(peer).draining; });
  worker.copier = feeders[0];
  stop_sending(worker.peer);
  worker.state = State::receiving;
  // A boundary that none of them has passed when it hears of it; each time that was too soon it is put off further.
  const int64_t boundary =
      phase_ == Phase::holding ? now : std::min(options_.steps, now + (int64_t{2} << std::min(worker.transfers, 16)));
  ++worker.transfers;
  worker.boundary = boundary;
  worker.work = {};
  worker.attempt =
      (number_ << 20) + worker.transfers;  // grows also from one coordinator to the next, which fences first
  for (size_t i = 0; i < feeders.size(); ++i)
    send(feeders[i],
         messages::SendState{.peer = worker.peer,
                             .endpoint = worker.endpoint,
                             .part = static_cast<int>(i),
                             .parts = static_cast<int>(feeders.size()),
                             .attempt = worker.attempt,
                             .copies = i == 0},
         /*generation=*/0, boundary);
}

void Coordinator::stop_sending(PeerId peer) {
  for (const auto& [to, w] : workers_)
    if (w.state == State::member) send(to, messages::StopSending{peer});
}

}  // namespace elinvar
