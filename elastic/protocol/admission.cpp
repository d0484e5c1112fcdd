#include "elastic/protocol/admission.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace elinvar {
namespace {

constexpr const char* kOtherForm = "the job's arrangement has changed since it asked";

}  // namespace

using Phase = JobState::Phase;
using State = Worker::State;

Admission::Arrival Admission::hello(const Message& m, const messages::Hello& hello, Seconds now) {
  job_.connect(m.sender, hello.about.endpoint);
  std::string reason = gone_.contains(m.sender) ? "it was evicted before" : job_.world.refuse(hello);
  bool again = gone_.contains(m.sender) && !unwanted_.contains(m.sender);
  if (hello.active && reason.empty() && !is_current(m)) {
    reason = "it belongs to a generation that is over";
    again = true;
  }
  if (!hello.active && reason.empty() && !job_.trains(m.sender) && !job_.fits(hello.about.zero)) {
    reason = kOtherForm;
    again = true;
  }
  if (!reason.empty()) {
    job_.world.event("refused", {{"peer", m.sender}, {"reason", reason}});
    job_.send(m.sender, messages::Refused{.reason = reason, .again = again});
    return Arrival::refused;
  }
  Worker& worker = job_.workers[m.sender];
  const bool known = worker.peer != 0;
  worker.peer = m.sender;
  worker.endpoint = hello.about.endpoint;
  worker.about = hello.about;
  worker.about.gradient = worker.about.state = {};  // long, and kept by the process that opens the run
  worker.seen = now;
  worker.completed = m.step;
  worker.generation = m.generation;
  worker.blind = false;
  worker.warm = hello.warm;
  worker.draining = worker.draining || hello.draining;
  job_.number = std::max({job_.number, hello.promised, m.generation});
  if (hello.active) {
    for (const messages::Learner& learner : hello.learners)
      if (!job_.workers.contains(learner.peer) && !gone_.contains(learner.peer))
        job_.call(learner.peer, learner.endpoint);
    worker.state = State::member;
    worker.id = hello.id;
    job_.next_id = std::max(job_.next_id, worker.id + 1);
    return Arrival::member;
  }
  if (known && job_.phase != Phase::starting && worker.state != State::joining)
    return worker.state == State::receiving && hello.ready ? Arrival::caught_up : Arrival::known;
  if (known && worker.state == State::member) return Arrival::known;
  worker.state = State::joining;
  job_.world.event("hello",
                   {{"peer", worker.peer}, {"endpoint", worker.endpoint}, {"environment", *hello.about.environment}});
  if (job_.phase != Phase::starting) return Arrival::newcomer;
  // With adaptive scaling, other workers may have reached another state after the same number of steps.
  const bool whole = !job_.sharded || hello.whole;
  if (hello.loaded && whole && m.step == job_.first_step && !job_.adaptive()) {
    worker.state = State::ready;
    return Arrival::starter;
  }
  job_.send(worker.peer, messages::Welcome{.restore = job_.first_step, .zero = job_.zero()});
  return Arrival::newcomer;
}

// Returns whether the sender is a member of the newest record, or of its predecessor while it is unknown whether the
// planned change took place.
bool Admission::is_current(const Message& m) const {
  return job_.current && (job_.current->index_of(m.sender) >= 0 ||
                          (job_.phase == Phase::gathering && m.generation == job_.current->follows));
}

bool Admission::gathered(Seconds now) const {
  return now >= gather_until_ || std::all_of(job_.current->members.begin(), job_.current->members.end(),
                                             [&](const GenerationMember& m) { return job_.workers.contains(m.peer); });
}

void Admission::restore_all() {
  for (auto& [peer, w] : job_.workers) {
    w.blind = false;
    job_.send(peer, messages::Welcome{.restore = job_.first_step, .zero = job_.zero()}, job_.number);
  }
}

std::vector<PeerId> Admission::turn_away_misfits() {
  std::vector<PeerId> turned;
  for (const auto& [peer, w] : job_.workers)
    if (w.state != State::member && w.state != State::leaving && !job_.fits(w.about.zero)) turned.push_back(peer);
  for (const PeerId peer : turned) {
    job_.send(peer, messages::Refused{.reason = kOtherForm, .again = true});
    job_.workers.erase(peer);
  }
  return turned;
}

void Admission::turn_away(PeerId stranger) {
  if (const auto gone = gone_.find(stranger); gone != gone_.end())  // its connection may be closed
    job_.connect(stranger, gone->second);
  job_.send(stranger, messages::Release{.what = "expelled",
                                        .reason = "the others went on without this worker",
                                        .again = !unwanted_.contains(stranger)});
}

bool Admission::may_leave(const Worker& worker) const {
  if (job_.phase == Phase::holding) return worker.state == State::joining || worker.state == State::receiving;
  return job_.phase == Phase::running && !job_.concerned(worker);
}

Worker Admission::dismiss(PeerId peer) {
  const Worker worker = job_.workers.at(peer);
  job_.send(peer, messages::Release{.what = "left", .reason = "it was asked to leave"});
  job_.world.event("left", {{"worker", worker.id}, {"peer", peer}});
  gone_.emplace(peer, worker.endpoint);
  unwanted_.insert(peer);
  job_.workers.erase(peer);
  return worker;
}

Worker Admission::remove(PeerId peer, const std::string& reason) {
  const Worker worker = job_.workers.at(peer);
  job_.workers.erase(peer);
  gone_.emplace(peer, worker.endpoint);
  if (worker.draining) unwanted_.insert(peer);
  job_.disconnect(peer);
  job_.world.event("lost", {{"worker", worker.id}, {"peer", peer}, {"reason", reason}});
  return worker;
}

void Admission::expel(PeerId peer, const std::string& reason, bool guilty) {
  if (guilty) unwanted_.insert(peer);
  const bool again = !guilty && !job_.workers.at(peer).draining;
  job_.send(peer, messages::Release{.what = "expelled", .reason = reason, .again = again});
  job_.world.evict(peer);
}

}  // namespace elinvar
