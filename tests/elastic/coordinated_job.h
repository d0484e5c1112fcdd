#pragma once
// Shared by tests of a coordinator's parts: a world that records all calls, and a JobState with workers in the states
// that a test needs.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/protocol/job_state.h"

namespace elinvar::test {

struct RecordingWorld final : CoordinatorWorld {
  bool create(const Generation& generation) override {
    if (taken.contains(generation.number)) return false;
    created.push_back(generation);
    return true;
  }
  bool superseded() override { return later_term; }
  std::optional<int64_t> facts(const std::vector<StepFacts>& steps) override {
    if (later_term) return std::nullopt;
    for (const StepFacts& facts : steps) on_file = std::max(on_file, facts.step);
    return on_file;
  }
  int64_t restart() override { return 0; }
  int64_t newest_checkpoint(int64_t most) override { return std::min<int64_t>(most, 3); }
  Recorded begin_history() override { return recorded; }
  void event(const std::string& name, const nlohmann::json& fields) override { events.emplace_back(name, fields); }
  void evict(PeerId peer) override { evicted.push_back(peer); }
  std::string refuse(const messages::Hello&) override { return refusal; }

  std::set<int64_t> taken;  // numbers of records that other coordinators made
  bool later_term = false;
  int64_t on_file = -1;
  Recorded recorded;
  std::string refusal;
  std::vector<Generation> created;
  std::vector<std::pair<std::string, nlohmann::json>> events;
  std::vector<PeerId> evicted;
};

struct CoordinatedJob {
  explicit CoordinatedJob(CoordinatorOptions options = {.endpoint = "here", .steps = 100, .plan = {.vranks = 8}},
                          int64_t first_step = 0)
      : state(options, world, first_step) {}

  // Adds a worker whose id is its peer number.
  Worker& add(PeerId peer, Worker::State as = Worker::State::member, int64_t completed = 0) {
    return state.workers[peer] = Worker{.peer = peer,
                                        .id = static_cast<int>(peer),
                                        .endpoint = "at " + std::to_string(peer),
                                        .state = as,
                                        .completed = completed};
  }
  static Generation generation(int64_t number, const std::vector<PeerId>& members) {
    Generation g{.number = number, .first_step = 0, .members = {}, .reason = ""};
    for (const PeerId peer : members)
      g.members.push_back({.id = static_cast<int>(peer), .peer = peer, .endpoint = "", .share = {}, .first_share = {}});
    return g;
  }
  // Adds these members of generation 1, which runs.
  void run(const std::vector<PeerId>& members) {
    for (const PeerId peer : members) add(peer).generation = 1;
    state.current = generation(1, members);
    state.number = 1;
    state.next_id = static_cast<int>(members.size()) + 1;
    state.phase = JobState::Phase::running;
  }
  // Returns the messages to a peer since the last call. Drops messages to others.
  std::vector<Message> sent(PeerId peer) {
    std::vector<Message> messages;
    for (const Action& action : std::exchange(state.actions, {}))
      if (action.what == Action::What::send && action.peer == peer) messages.push_back(action.message);
    return messages;
  }
  std::vector<std::string> kinds_sent(PeerId peer) {
    std::vector<std::string> kinds;
    for (const Message& message : sent(peer)) kinds.push_back(message.payload.kind().name);
    return kinds;
  }
  int64_t count(const std::string& event) const {
    return std::count_if(world.events.begin(), world.events.end(), [&](const auto& e) { return e.first == event; });
  }

  RecordingWorld world;
  JobState state;
};

// Returns a message whose contents do not matter.
inline Message from(PeerId sender, int64_t generation = 0, int64_t step = 0) {
  return {.sender = sender, .generation = generation, .step = step, .payload = {}};
}

using Kinds = std::vector<std::string>;
using Peers = std::vector<PeerId>;

}  // namespace elinvar::test
