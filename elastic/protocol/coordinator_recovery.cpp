// The coordinator: what it does when somebody is gone, the coordinator before it included.
#include "elastic/protocol/coordinator.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar {

using State = Worker::State;

// Whether the worker may be computing in a generation that counts, so that its death must be answered by a fence.
bool Coordinator::concerned(const Worker& worker) const {
  return worker.state == State::member || worker.state == State::leaving ||
         (proposal_ && proposal_->index_of(worker.peer) >= 0);
}

bool Coordinator::trains(PeerId peer) const {
  const auto worker = workers_.find(peer);
  return worker != workers_.end() && concerned(worker->second);
}

void Coordinator::lost(PeerId peer, const std::string& reason, Seconds now) {
  if (phase_ != Phase::ended && workers_.contains(peer)) gone(peer, reason, now);
}

void Coordinator::gone(PeerId peer, const std::string& reason, Seconds now) {
  const Worker worker = workers_.at(peer);
  workers_.erase(peer);
  gone_.emplace(peer, worker.endpoint);
  if (worker.draining) unwanted_.insert(peer);
  fence_targets_.erase(peer);
  actions_.push_back({Action::What::disconnect, peer, {}, {}});
  world_.event("lost", {{"worker", worker.id}, {"peer", peer}, {"reason", reason}});
  stop_sending(peer);
  if (phase_ == Phase::fencing) {
    group_failed_ = false;
    return conclude_fence(now);
  }
  if (phase_ == Phase::running && concerned(worker))
    return fence("lost worker " + std::to_string(worker.id) + ": " + reason, now);
  if (phase_ == Phase::holding) return conclude_fence(now);
  if (phase_ == Phase::starting && workers_.empty()) end("failed", "no worker is left: " + reason);
}

void Coordinator::evict(PeerId peer, const std::string& reason, Seconds now, bool guilty) {
  if (phase_ == Phase::ended || !workers_.contains(peer)) return;
  if (guilty) unwanted_.insert(peer);
  const bool again = !guilty && !workers_.at(peer).draining;
  send(peer, messages::Release{.what = "expelled", .reason = reason, .again = again});
  world_.evict(peer);
  gone(peer, reason, now);
}

// Whoever is silent is put out, unless nobody who could go on is heard: then they are waited for, and since what
// stopped them may be one thing, from the first word of any of them all have as long again. Those that are stopped at
// once said their last apart, and a word may come late: between the two nothing is decided.
void Coordinator::listen_for_silence(Seconds now) {
  std::vector<PeerId> silent;
  std::optional<Seconds> newest;  // word of those who have the state
  for (const auto& [peer, w] : workers_) {
    if (now - w.seen > options_.heartbeat_timeout) silent.push_back(peer);
    if (w.state == State::joining && phase_ != Phase::starting) continue;
    if (w.state == State::receiving) continue;
    newest = std::max(newest.value_or(w.seen), w.seen);
  }
  const bool heard = newest && now - *newest <= options_.heartbeat_timeout / 2;
  if (newest && now - *newest > options_.heartbeat_timeout) {
    if (!deserted_)
      world_.event("hold",
                   {{"workers", 0}, {"reason", "all who have the state are silent"}, {"seconds", options_.hold}});
    if (!deserted_) deserted_ = now;
    if (now - *deserted_ < options_.hold) return;
  } else if (deserted_) {
    if (heard) world_.event("heard", {{"after", now - *deserted_}});
    for (auto& [peer, w] : workers_) w.seen = now;
    no_hang_until_ = now + options_.heartbeat_timeout;  // what they were at has lasted for as long
    silent.clear();
  } else if (newest && !heard) {
    return;
  }
  deserted_.reset();
  for (const PeerId peer : silent) evict(peer, fmt::format("silent for {:.1f} s", options_.heartbeat_timeout), now);
}

void Coordinator::fence(const std::string& reason, Seconds now) {
  ++number_;
  phase_ = Phase::fencing;
  fence_reason_ = reason;
  fence_said_ = now;
  fence_targets_.clear();
  for (auto& [peer, w] : workers_) {
    if (!concerned(w) && w.state != State::ready) continue;
    w.fenced.reset();
    fence_targets_.insert(peer);
    send(peer, messages::Fence{}, number_);
  }
  proposal_.reset();
  world_.event("fence", {{"number", number_}, {"reason", reason}});
  conclude_fence(now);
}

// Connections lose nothing while they live; should a message be lost all the same, this finds who waits for it.
void Coordinator::find_what_is_lost(Seconds now) {
  if (phase_ == Phase::fencing && now > fence_said_ + options_.repeat) {
    fence_said_ = now;
    for (const PeerId peer : fence_targets_)
      if (!workers_.at(peer).fenced) send(peer, messages::Fence{}, number_);
  }
  if (phase_ != Phase::running && phase_ != Phase::holding) return;
  const int64_t newest = completed();
  const Seconds patience = patience_.at(newest);
  bool learners = false;
  for (auto& [peer, w] : workers_) {
    const bool behind = phase_ == Phase::holding || newest > std::max(w.completed, w.boundary) + 1;
    if (w.state != State::receiving || !behind || w.work.idle <= patience) continue;
    world_.event("stuck", {{"peer", peer}, {"seconds", w.work.idle}, {"misses", "what it was to learn"}});
    learners = true;
    w.state = State::joining;
  }
  if (learners) patience_.lost(newest);
  send_state_to_joiners();
  if (phase_ != Phase::running) return;
  const std::optional<Hung> stuck = find_stuck(*current_, workers_, patience, now);
  if (!stuck) return;
  patience_.lost(newest);
  const int id = workers_.at(stuck->peer).id;
  world_.event("stuck", {{"worker", id}, {"seconds", patience}, {"misses", stuck->reason}});
  fence(fmt::format("worker {} misses {}", id, stuck->reason), now);
}

void Coordinator::fenced(Worker& worker, const Message& m, const messages::Fenced& answer, Seconds now) {
  if (phase_ != Phase::fencing || !fence_targets_.contains(worker.peer) || answer.promised < number_) return;
  if (answer.promised > number_) {  // another coordinator was here
    number_ = answer.promised;
    return fence(fence_reason_, now);
  }
  worker.fenced = answer;
  worker.completed = m.step;
  conclude_fence(now);
}

void Coordinator::conclude_fence(Seconds now) {
  for (const PeerId peer : fence_targets_)
    if (!workers_.at(peer).fenced) return;
  if (std::exchange(group_failed_, false)) ++group_failures_;
  Recovery recovery = recover(workers_, fence_targets_);
  if (recovery.step < 0) return end("failed", "no worker is left; go on with --resume");
  const bool saves = !wishes_.stop.empty();  // and nothing else: any number can do that
  if (static_cast<int>(recovery.members.size()) < options_.min_workers && !saves) {
    if (phase_ != Phase::holding)
      world_.event("hold", {{"workers", recovery.members.size()}, {"min_workers", options_.min_workers}});
    phase_ = Phase::holding;
    return restart_learners();
  }
  prepare_trial(recovery);
  // Without any of them that were at work the others may have gone on together, out of reach.
  const bool any_at_work = std::any_of(fence_targets_.begin(), fence_targets_.end(),
                                       [&](PeerId peer) { return workers_.at(peer).fenced->active; });
  if (adaptive() && !any_at_work) begin_history(number_);
  if (recovery.end) options_.steps = *recovery.end;
  Generation g = next_generation(recovery.members, fence_reason_);
  g.number = number_;
  g.group_from = group_to_recover(g);
  g.first_step = recovery.step;
  if (g.scaling) g.scaling->scaling_state = recovery.scaling_state;
  if (recovery.scaling_state) batch_ = recovery.scaling_state->batch;
  if (doubt_) g.trial = doubt_->trial;
  g.stop = !doubt_ && !wishes_.stop.empty();                 // of a state in doubt nothing is saved
  g.checkpoint = g.stop || recovery.step >= options_.steps;  // a part of the last one may be lost
  std::vector<std::vector<Interval>> kept;
  for (const GenerationMember& m : g.members) kept.push_back(recovery.kept[m.peer]);
  const auto first = assign_orphans(options_.plan.vranks, std::move(kept), speeds_of(g.members, workers_));
  for (size_t i = 0; i < first.size(); ++i) g.members[i].first_share = first[i];
  if (!create(g, now)) return;
  doubt_.reset();
  current_ = g;
  phase_ = Phase::running;
  changed_ = now;
  for (auto& [peer, w] : workers_) {
    w.work = {};
    if (g.index_of(peer) >= 0) w.state = State::member;
    else if (w.state == State::ready) w.state = State::joining;  // it fell behind: it learns again
  }
  messages::Start start{.record = g};
  for (const auto& [peer, steps] : recovery.completed)  // who can give its last result to those who lack it
    if (workers_.at(peer).fenced->keeps) start.completed[peer] = steps;
  for (const GenerationMember& m : g.members) send(m.peer, start, g.number);
  restart_learners();
}

// A new coordinator waits for the members of an old one.
void Coordinator::gather(Seconds now) {
  const bool all = std::all_of(current_->members.begin(), current_->members.end(),
                               [&](const GenerationMember& m) { return workers_.contains(m.peer); });
  if (!all && now < gather_until_) return;
  const bool any = std::any_of(workers_.begin(), workers_.end(),
                               [](const auto& entry) { return entry.second.state == State::member; });
  if (any) return fence("another coordinator", now);
  if (workers_.empty()) return end("failed", "no worker is left; go on with --resume");
  phase_ = Phase::starting;
  start_until_ = now + options_.start_timeout;
  current_.reset();
  first_step_ = world_.restart();
  if (adaptive()) begin_history(number_ + 1);
  final_checkpoint_ = first_step_ > 0 ? first_step_ : -1;
  for (auto& [peer, w] : workers_) {
    w.blind = w.welcomed = false;
    send(peer, messages::Welcome{.restore = first_step_});
  }
}

}  // namespace elinvar
