#include "elastic/protocol/job_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace elinvar {

using State = Worker::State;

JobState::JobState(const CoordinatorOptions& given, CoordinatorWorld& its_world, int64_t first)
    : options(given),
      world(its_world),
      steps(given.steps),
      first_step(first),
      arrangement(given.arrangement),
      automatic(!given.forecasts.of_workers.empty()),
      sharded(given.arrangement.zero > 0),
      segments(given.segments) {}

PlanLimits JobState::limits() const {
  PlanLimits limits = options.plan;
  limits.replica = limits_of(arrangement, options.virtual_shards, segments);
  return limits;
}

std::string JobState::why_not(const Arrangement& other) const {
  if (other.tp > options.virtual_shards)
    return fmt::format("tp={} needs at least as many virtual shards, but model.virtual_shards = {}", other.tp,
                       options.virtual_shards);
  for (const auto& [peer, w] : workers)
    if (zero_in(other) > 0 && w.about.shards == 0)
      return to_string(other) + " needs an optimizer whose state can be divided";
  if (other.pp == 1) return "";
  if (segments.homes.empty()) return fmt::format("pp={} needs a network that is a list of segments", other.pp);
  if (const int most = most_stages(segments); other.pp > most)
    return fmt::format("pp={} needs at least as many segments, but the network has {} that can be divided", other.pp,
                       most);
  return "";
}

bool JobState::changing_form() const {
  const auto form_in = [](const Generation& g) { return form_of(g.sharding ? g.sharding->zero : 0); };
  if (!current) return false;
  if (proposal && form_in(*proposal) != form_in(*current)) return true;
  return form_of(current->held_with(current->first_step)) != form_in(*current) && completed() <= current->first_step;
}

int64_t JobState::completed() const {
  int64_t most = first_step;
  for (const auto& [peer, w] : workers)
    if (w.state == State::member || w.state == State::leaving || w.state == State::ready)
      most = std::max(most, w.completed);
  return most;
}

bool JobState::concerned(const Worker& worker) const {
  return worker.state == State::member || worker.state == State::leaving ||
         (proposal && proposal->index_of(worker.peer) >= 0);
}

bool JobState::trains(PeerId peer) const {
  const auto worker = workers.find(peer);
  return worker != workers.end() && concerned(worker->second);
}

void JobState::connect(PeerId peer, const std::string& endpoint) {
  actions.push_back({Action::What::connect, peer, endpoint, {}});
}

void JobState::disconnect(PeerId peer) { actions.push_back({Action::What::disconnect, peer, {}, {}}); }

void JobState::send(PeerId peer, Payload payload, int64_t generation, int64_t step) {
  actions.push_back(
      {Action::What::send, peer, {}, {.generation = generation, .step = step, .payload = std::move(payload)}});
}

void JobState::call(PeerId peer, const std::string& endpoint) {
  connect(peer, endpoint);
  send(peer, messages::NewCoordinator{.term = options.term, .endpoint = options.endpoint});
}

void JobState::end(const std::string& what, const std::string& reason) {
  phase = Phase::ended;
  ending = Ending{what, reason};
  world.event("end", {{"what", what}, {"reason", reason}});
  if (what == "superseded") return;
  for (const auto& [peer, w] : workers) send(peer, messages::Release{.what = what, .reason = reason});
}

void JobState::fail(const std::string& reason) {
  phase = Phase::ended;
  ending = Ending{"failed", reason};
  for (const auto& [peer, w] : workers) send(peer, messages::Release{.what = "failed", .reason = reason});
}

void JobState::superseded() {
  if (phase != Phase::ended) end("superseded", "another coordinator has taken over; this one steps down");
}

const char* name_of(JobState::Phase phase) {
  constexpr const char* kNames[] = {"gathering", "starting", "running", "recovering", "holding", "ended"};
  return kNames[static_cast<int>(phase)];
}

}  // namespace elinvar
