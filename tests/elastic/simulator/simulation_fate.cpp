// The simulator: faults of its processes.
#include "tests/elastic/simulator/simulation.h"

#include <algorithm>

namespace elinvar {

void Simulation::stall(Node& n, double seconds) {
  n.stalled_until = std::max(n.stalled_until, now_ + seconds);
  log(fmt::format("stall {} until {:.3f}", n.peer, n.stalled_until));
  if (workers_.contains(n.peer)) at(n.stalled_until + 1e-4, [this, peer = n.peer] { advance(*workers_.at(peer)); });
}

void Simulation::hang(Process& p) {
  p.hung = p.busy = true;
  p.busy_since = now_;
  log(fmt::format("hang {}", p.peer));
}

// Kills another member while this one's rank gradient is open, and keeps it open until the fence arrives, so that some
// fences certainly interrupt an open rank gradient.
void Simulation::kill_beside(Process& p) {
  for (const auto& [peer, other] : workers_) {
    if (peer == p.peer || !other->alive || !other->member->position().active()) continue;
    if (other->member->position().number() != p.member->position().number()) continue;
    kills_beside_open_ = false;
    ++result_.killed_beside;
    die(*other, "kill");
    return stall(p, uniform(0.1, 0.5));
  }
}

// Cuts the network in two. Both sides see the run directory, or only one does: then workers on the other side do not
// see it, and a coordinator there waits for it.
void Simulation::partition(double seconds) {
  whole_from_ = now_ + seconds;
  directory_cut_ = pick(3);
  log(fmt::format("cut in two until {:.3f}, directory {}", whole_from_, directory_cut_));
  for (const auto& [term, h] : heads_)
    if (h->alive && directory_cut_ > 0 && (directory_cut_ == 1) == h->far) stall(*h, seconds);
  if (pick(2) == 0) return;
  // A long cut ends connections.
  const double when = now_ + uniform(0.2, 1) * seconds;
  for (const auto& [from, to] : connected_)
    if (node(from)->far != node(to)->far) at(when + uniform(0, 0.2), [this, from = from, to = to] { lose(from, to); });
}

Simulation::Lost Simulation::lost() {
  std::vector<Lost> kinds = {Lost::any, Lost::open};
  if (most_.tp > 1) kinds.push_back(Lost::values);
  if (most_.pp > 1) kinds.push_back(Lost::input);
  if (divided()) kinds.push_back(Lost::digests);
  if (most_.zero > 2) kinds.push_back(Lost::parameters);
  return kinds[static_cast<size_t>(pick(static_cast<int>(kinds.size())))];
}

void Simulation::fault() {
  Node* worker = any_of(workers_);
  Node* coordinator = any_of(heads_);
  switch (pick(15)) {
    case 0:
      if (s_.kills && worker) die(*worker, "kill");
      break;
    case 1:
      kills_beside_open_ = s_.kills;
      break;
    case 2:
      if (s_.joins) add_worker();
      break;
    case 3:
      if (s_.joins) add_worker();
      if (s_.joins) add_worker();
      break;
    case 4:
      if (s_.drains && worker) {
        log(fmt::format("drain {}", worker->peer));
        Process& p = *workers_.at(worker->peer);
        p.member->drain();
        flush(p);
      }
      break;
    case 5:
      if (s_.stalls && worker) stall(*worker, uniform(0.05, 5));
      break;
    case 6:  // a person resumes at once
    case 7:  // it is not resumed: a worker takes over
      if (!s_.coordinator_dies || !coordinator) break;
      die(*coordinator, "coordinator dies");
      if (pick(2) == 0)
        at(now_ + uniform(0.1, 1.5), [this] {
          if (!head()) start_coordinator();
        });
      break;
    case 8:
      if (s_.stalls && coordinator) stall(*coordinator, uniform(0.05, 8));
      break;
    case 9:
      if (s_.cuts && worker) {
        worker->cut_until = now_ + uniform(0.05, 5);
        log(fmt::format("cut {} until {:.3f}", worker->peer, worker->cut_until));
      }
      break;
    case 10:
      if (s_.cuts && now_ >= whole_from_) partition(uniform(0.05, 6));
      break;
    case 13:
      if (!s_.drops || !worker) break;
      workers_.at(worker->peer)->loses.insert(lost());
      break;
    case 12:  // only one direction of a connection breaks
      if (s_.cuts && worker && coordinator) {
        log(fmt::format("the connection between {} and {} breaks", worker->peer, coordinator->peer));
        if (pick(2) == 0) lose(worker->peer, coordinator->peer);
        else lose(coordinator->peer, worker->peer);
      }
      break;
    case 11:
      if (s_.hangs && worker) hang(*workers_.at(worker->peer));
      break;
    case 14:  // a person asks for a checkpoint, or stops the run
      if (!s_.stops || !head() || now_ < head()->stalled_until) break;
      log("a person asks");
      if (pick(2) == 0) head()->coordinator->ask_checkpoint(now_);
      else head()->coordinator->ask_stop("a person asks", now_);
      flush(*head());
      break;
  }
}

// A person starts the job, or resumes it after all processes are gone.
void Simulation::resume() {
  if (s_.rearrangements > 0 && !records_.empty()) begins_with_ = any_arrangement(begins_with_);
  start_coordinator();
  for (int i = 0; i < s_.initial_workers; ++i) add_worker();
}

void Simulation::orphan() {
  at(now_ + uniform(0, 0.6), [this] {
    if (Head* h = head()) die(*h, "coordinator dies");
    Node* worker = any_of(workers_);
    if (worker && pick(2) == 0) stall(*worker, uniform(0.05, 20));
  });
}

void Simulation::look_after() {
  const bool any = std::any_of(workers_.begin(), workers_.end(),
                               [](const auto& entry) { return entry.second->alive && entry.second->watch; });
  if (!head() && !any) {
    log("all gone, resumed from step " + std::to_string(saved_step_));
    resume();
  }
  at(now_ + 0.5, [this] { look_after(); });
}

// No more faults: from here on the job must end.
void Simulation::mend() {
  kills_beside_open_ = false;
  if (!head()) return at(now_ + 1, [this] { mend(); });
  // A person kills a worker that hangs alone.
  for (const auto& [peer, p] : workers_)
    if (p->alive && p->hung) die(*p, "kill");
  for (int i = 0; i < s_.min_workers; ++i) add_worker();
  at(now_ + 20, [this] {
    int alive = 0;
    for (const auto& [peer, p] : workers_) alive += p->alive;
    if (!done_ && alive < s_.min_workers)
      for (int i = alive; i < s_.min_workers; ++i) add_worker();
  });
}

}  // namespace elinvar
