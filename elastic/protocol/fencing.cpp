#include "elastic/protocol/fencing.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace elinvar {

using Phase = JobState::Phase;

void Fencing::begin(const std::string& reason, Seconds now) {
  ++job_.number;
  job_.phase = Phase::fencing;
  reason_ = reason;
  asked_at_ = now;
  asked_.clear();
  for (auto& [peer, w] : job_.workers) {
    if (!job_.concerned(w) && w.state != Worker::State::ready) continue;
    w.fenced.reset();
    asked_.insert(peer);
    ask(peer);
  }
  job_.proposal.reset();
  job_.world.event("fence", {{"number", job_.number}, {"reason", reason}});
}

void Fencing::ask(PeerId peer) { job_.send(peer, messages::Fence{}, job_.number); }

// Connections lose nothing while they live. This makes up for a message that is lost all the same.
void Fencing::repeat(Seconds now) {
  if (job_.phase != Phase::fencing || now <= asked_at_ + job_.options.repeat) return;
  asked_at_ = now;
  for (const PeerId peer : asked_)
    if (!job_.workers.at(peer).fenced) ask(peer);
}

Fencing::Answer Fencing::answered(Worker& worker, const Message& m, const messages::Fenced& answer) {
  if (job_.phase != Phase::fencing || !asked(worker.peer) || answer.promised < job_.number) return Answer::ignored;
  if (answer.promised > job_.number) {
    job_.number = answer.promised;
    return Answer::of_another;
  }
  worker.fenced = answer;
  if (answer.shards) worker.about.zero = answer.shards->zero;
  worker.completed = worker.fenced_at = m.step;
  return Answer::counts;
}

void Fencing::forget(PeerId peer) { asked_.erase(peer); }

bool Fencing::complete() const {
  return std::all_of(asked_.begin(), asked_.end(),
                     [&](PeerId peer) { return job_.workers.at(peer).fenced.has_value(); });
}

void Fencing::return_learners(const std::vector<PeerId>& members) {
  std::erase_if(asked_, [&](PeerId peer) {
    Worker& w = job_.workers.at(peer);
    const bool learned = w.state == Worker::State::ready || w.state == Worker::State::member;
    if (!learned || w.fenced->active || std::ranges::find(members, peer) != members.end()) return false;
    w.state = Worker::State::joining;
    return true;  // its answer does not hold once it learns another state
  });
}

bool Fencing::any_at_work() const {
  return std::any_of(asked_.begin(), asked_.end(), [&](PeerId peer) { return job_.workers.at(peer).fenced->active; });
}

bool Fencing::any_came() const {
  return std::any_of(job_.workers.begin(), job_.workers.end(), [&](const auto& entry) {
    return entry.second.state == Worker::State::ready && !asked(entry.first);
  });
}

void Fencing::hold(size_t members) {
  if (job_.phase != Phase::holding)
    job_.world.event("hold", {{"workers", members}, {"min_workers", job_.options.min_workers}});
  job_.phase = Phase::holding;
}

}  // namespace elinvar
