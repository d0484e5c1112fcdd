#include "elastic/protocol/transfer_scheduler.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace elinvar {

using Phase = JobState::Phase;
using State = Worker::State;

void TransferScheduler::introduced(PeerId peer) {
  if (const auto worker = job_.workers.find(peer); worker != job_.workers.end()) worker->second.welcomed = false;
}

std::vector<PeerId> TransferScheduler::serve() {
  std::vector<PeerId> leaving;
  const bool running = job_.phase == Phase::running && !facts_.last_told(), holding = job_.phase == Phase::holding;
  if (!running && !holding) return leaving;
  for (auto& [peer, w] : job_.workers) {
    if (w.state != State::joining) continue;
    if (w.draining) {
      leaving.push_back(peer);
      continue;
    }
    // It would hold the state in a form in which members no longer hold it.
    if (running && !w.welcomed && job_.changes_form()) continue;
    Transfer& transfer = transfers_[peer];
    if (!std::exchange(w.welcomed, true)) job_.send(peer, messages::Welcome{});
    if (holding || (w.warm && !job_.changing_form())) begin(w, transfer);
  }
  return leaving;
}

void TransferScheduler::begin(Worker& learner, Transfer& transfer) {
  const bool holding = job_.phase == Phase::holding;
  const int64_t now = job_.completed();
  if (!holding && now > job_.steps) return;  // no boundary follows
  std::vector<PeerId> senders;
  for (const auto& [peer, w] : job_.workers)
    if (holding ? w.state != State::joining && fencing_.asked(peer) && w.completed == now : w.state == State::member)
      senders.push_back(peer);
  if (senders.empty()) return;
  std::stable_partition(senders.begin(), senders.end(), [&](PeerId peer) { return !job_.workers.at(peer).draining; });
  transfer.copier = senders[0];
  stop(learner.peer);
  learner.state = State::receiving;
  learner.work = {};
  // A boundary that no member has passed when it learns of it; moved further ahead each time it was too soon.
  transfer.boundary = holding ? now : std::min(job_.steps, now + (int64_t{2} << std::min(transfer.attempts, 16)));
  ++transfer.attempts;
  // Grows also from one coordinator to the next, because a new coordinator fences first.
  transfer.attempt = (job_.number << 20) + transfer.attempts;
  for (size_t i = 0; i < senders.size(); ++i)
    job_.send(senders[i],
              messages::SendState{.peer = learner.peer,
                                  .endpoint = learner.endpoint,
                                  .part = static_cast<int>(i),
                                  .parts = static_cast<int>(senders.size()),
                                  .attempt = transfer.attempt,
                                  .copies = i == 0},
              /*generation=*/0, transfer.boundary);
}

bool TransferScheduler::caught_up(const Worker& worker, int64_t attempt) const {
  const auto transfer = transfers_.find(worker.peer);
  return worker.state == State::receiving && transfer != transfers_.end() && attempt == transfer->second.attempt;
}

void TransferScheduler::missed(PeerId learner) {
  const auto worker = job_.workers.find(learner);
  if (worker != job_.workers.end() && worker->second.state == State::receiving) worker->second.state = State::joining;
}

void TransferScheduler::restart() {
  for (auto& [peer, w] : job_.workers)
    if (w.state == State::receiving) w.state = State::joining;
}

void TransferScheduler::restart_from_leavers() {
  for (auto& [peer, w] : job_.workers)
    if ((w.state == State::receiving || w.state == State::ready) && job_.current->index_of(transfers_[peer].copier) < 0)
      w.state = State::joining;
}

bool TransferScheduler::restart_stuck(Seconds patience) {
  const int64_t newest = job_.completed();
  bool any = false;
  for (auto& [peer, w] : job_.workers) {
    if (w.state != State::receiving) continue;
    const bool behind = job_.phase == Phase::holding || newest > std::max(w.completed, transfers_[peer].boundary) + 1;
    if (!behind || w.work.idle <= patience) continue;
    job_.world.event("stuck", {{"peer", peer}, {"seconds", w.work.idle}, {"misses", "what it was to learn"}});
    w.state = State::joining;
    any = true;
  }
  return any;
}

void TransferScheduler::stop(PeerId learner) {
  for (const auto& [to, w] : job_.workers)
    if (w.state == State::member) job_.send(to, messages::StopSending{learner});
}

void TransferScheduler::forget(PeerId learner) { transfers_.erase(learner); }

}  // namespace elinvar
