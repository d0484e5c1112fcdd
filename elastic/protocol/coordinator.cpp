#include "elastic/protocol/coordinator.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar {

using Json = nlohmann::json;
using State = Worker::State;

constexpr Seconds kAway = 0.25;      // without listening: then it was stopped, or waited for a disk
constexpr Seconds kLongestRest = 1;  // between two ticks
constexpr Seconds kSoon = 0.025;     // the same where something is on its way
constexpr Seconds kTellEvery = 1.9;  // that facts are on file; nobody waits for it,
constexpr int64_t kMostUntold = 32;  // but members keep what they were not told of, and repeat it after a death

Coordinator::Coordinator(const CoordinatorOptions& options, CoordinatorWorld& world, int64_t first_step,
                         const Records& records, Seconds now)
    : options_(options),
      world_(world),
      first_step_(first_step),
      patience_(options.stuck),
      changed_(now),
      tick_by_(now),
      deaf_from_(now) {
  start_until_ = now + options_.start_timeout;
  if (first_step > 0) final_checkpoint_ = first_step;
  on_file_ = first_step - 1;
  if (adaptive()) {
    begin_history(records.newest ? records.newest->number + 1 : 1);
    if (records.newest && records.newest->scaling) {
      base_workers_ = records.newest->scaling->base_workers;
      if (records.members_alive) history_ = records.newest->scaling->history;
    }
  }
  if (!records.newest) return;
  number_ = records.newest->number;
  next_id_ = records.newest->next_id;
  if (!records.members_alive) return;
  current_ = records.newest;
  phase_ = Phase::gathering;
  gather_until_ = now + options_.gather_timeout;
  for (const GenerationMember& m : records.newest->members) call(m.peer, m.endpoint);
  if (!records.before) return;
  for (const GenerationMember& m : records.before->members) call(m.peer, m.endpoint);
}

// Tells a worker where its coordinator is now.
void Coordinator::call(PeerId peer, const std::string& endpoint) {
  actions_.push_back({Action::What::connect, peer, endpoint, {}});
  send(peer, messages::NewCoordinator{.term = options_.term, .endpoint = options_.endpoint});
}

const char* Coordinator::name_of(Phase phase) {
  constexpr const char* kNames[] = {"gathering", "starting", "running", "recovering", "holding", "ended"};
  return kNames[static_cast<int>(phase)];
}

int64_t Coordinator::completed() const {
  int64_t most = first_step_;
  for (const auto& [peer, w] : workers_)
    if (w.state == State::member || w.state == State::leaving || w.state == State::ready)
      most = std::max(most, w.completed);
  return most;
}

void Coordinator::send(PeerId peer, Payload payload, int64_t generation, int64_t step) {
  actions_.push_back(
      {Action::What::send, peer, {}, {.generation = generation, .step = step, .payload = std::move(payload)}});
}

std::vector<Action> Coordinator::take_actions() { return std::exchange(actions_, {}); }

void Coordinator::receive(const Message& m, Seconds now) {
  if (phase_ == Phase::ended) return;
  if (const auto* introduction = m.as<messages::Hello>()) return hello(m, *introduction, now);
  const auto found = workers_.find(m.sender);
  if (found == workers_.end()) return from_stranger(m);
  Worker& worker = found->second;
  worker.seen = now;
  if (const auto* told = m.as<messages::Facts>()) return facts(m, told->told, now);
  if (const auto* alive = m.as<messages::Alive>()) {
    heartbeat(worker, *alive);
    if (!alive->told.steps.empty()) return facts(m, alive->told, now);
  }
  progress(worker, m, now);
  if (phase_ == Phase::ended || !workers_.contains(m.sender)) return;
  std::visit(Overloaded{[&](const messages::Ready& told) { ready(worker, m, told, now); },
                        [&](const messages::Blind&) {
                          worker.blind = true;
                          if (phase_ == Phase::starting) begin_generation_of_starters(now);
                        },
                        [&](const messages::Warm&) {
                          worker.warm = true;
                          send_state_to_joiners();
                        },
                        [&](const messages::Missed& told) { missed(told); },
                        [&](const messages::Audit& told) { audit(m, told.evidence, now); },
                        [&](const messages::GroupUsed& told) { group_used(m, told); },
                        [&](const messages::GroupMissing& told) { group_missing(worker, told); },
                        [&](const messages::GroupFailed& told) { group_failed(worker, m, told, now); },
                        [&](const messages::Fenced& answer) { fenced(worker, m, answer, now); },
                        [&](const messages::Suspect& told) {
                          if (workers_.contains(told.peer)) gone(told.peer, told.reason, now);
                        },
                        [&](const messages::Drain&) { drain(worker, now); },
                        [&](const messages::Failed& told) {
                          end("failed", fmt::format("worker {}: {}", worker.id, told.reason));
                        },
                        [](const auto&) {}},  // nothing that a worker tells its coordinator
             m.payload);
}

// A worker that was evicted, or speaks to a coordinator that it has not introduced itself to.
void Coordinator::from_stranger(const Message& m) {
  const auto* alive = m.as<messages::Alive>();
  const auto* told = m.as<messages::Facts>();
  const TellsFacts* late = told ? &told->told : alive && !alive->told.steps.empty() ? &alive->told : nullptr;
  if (late && of_this_history(m)) (void)write_facts(steps_in(*late));  // but true
  if (!alive) return;
  if (const auto gone = gone_.find(m.sender); gone != gone_.end())  // whose connection may be closed
    actions_.push_back({Action::What::connect, m.sender, gone->second, {}});
  send(m.sender, messages::Release{.what = "expelled",
                                   .reason = "the others went on without this worker",
                                   .again = !unwanted_.contains(m.sender)});
}

void Coordinator::heartbeat(Worker& worker, const messages::Alive& alive) {
  if (alive.answer) send(worker.peer, messages::Heard{});
  worker.work = alive.work;
}

void Coordinator::progress(Worker& worker, const Message& m, Seconds now) {
  worker.generation = std::max(worker.generation, m.generation);
  worker.completed = std::max(worker.completed, m.step);
  if (const auto* entered = m.as<messages::Entered>(); entered && entered->end && of_this_history(m))
    options_.steps = *entered->end;
  if (proposal_ && phase_ == Phase::running && m.generation == proposal_->number) switched(now);
  release_leavers();
}

void Coordinator::facts(const Message& m, const TellsFacts& told, Seconds now) {
  const std::vector<StepFacts> steps = steps_in(told);
  for (const StepFacts& facts : steps)
    if (facts.end && of_this_history(m)) options_.steps = *facts.end;
  progress(workers_.at(m.sender), m, now);
  if (!of_this_history(m) || !write_facts(steps)) return;
  for (const StepFacts& facts : steps) {
    heard_ = std::max(heard_, facts.step);
    if (facts.step >= options_.steps) final_ = true;
    if (facts.state) agreed_state_ = std::max(agreed_state_, facts.step);
    // A later generation than that which made the step may tell of it.
    if (facts.update && current_ && facts.update->generation == current_->number) learn_speeds(facts);
  }
  const int64_t confirmed = std::min(on_file_, heard_);  // what nobody has told of yet is to be kept
  if (confirmed > told_ && (confirmed >= told_ + kMostUntold || now >= told_at_ + kTellEvery)) {
    told_ = confirmed;
    told_at_ = now;
    for (const auto& [peer, w] : workers_)
      if (w.state == State::member || w.state == State::leaving)
        send(peer, messages::Ack{}, /*generation=*/0, confirmed);
  }
  release_leavers();
  if (whole()) end("finished", "");
  else maybe_propose(now);
}

void Coordinator::learn_speeds(const StepFacts& facts) {
  const std::vector<double>& seconds = facts.update->seconds;
  for (size_t i = 0; i < seconds.size() && i < current_->members.size(); ++i) {
    const auto member = workers_.find(current_->members[i].peer);
    if (member == workers_.end() || !(seconds[i] > 0)) continue;
    double& speed = member->second.speed;
    speed = speed == 0 ? 1 / seconds[i] : 0.7 * speed + 0.3 / seconds[i];
  }
  measure(facts);
}

void Coordinator::begin_history(int64_t number) {
  options_.steps = INT64_MAX >> 2;
  recorded_ = world_.begin_history();
  batch_ = recorded_.scaling_state.batch;
  history_ = number;
}

bool Coordinator::of_this_history(const Message& message) const {
  return !adaptive() || message.generation >= history_;
}

// False: nobody may be told that they are on file.
bool Coordinator::write_facts(const std::vector<StepFacts>& steps) {
  const std::optional<int64_t> on_file = world_.facts(steps);
  if (on_file) on_file_ = *on_file;
  else superseded();
  return on_file.has_value();
}

void Coordinator::tick(Seconds now) {
  if (phase_ == Phase::ended) return;
  // Whoever was silent while the coordinator itself did not listen may just not have been heard.
  if (now > deaf_from_ + kAway)
    for (auto& [peer, w] : workers_) w.seen = std::min(now, w.seen + now - deaf_from_);
  decide(now);
  deaf_from_ = tick_by_ = next_tick(now);
}

void Coordinator::woke(Seconds now) { deaf_from_ = std::min(deaf_from_, now); }

// By when time alone may call for something: that a worker is silent is found when it is, all else within a second.
Seconds Coordinator::next_tick(Seconds now) const {
  const bool soon = !deserted_ && (phase_ != Phase::running || save_again_at_);
  Seconds next = now + (soon ? kSoon : kLongestRest);
  for (const auto& [peer, w] : workers_)
    if (const Seconds silent = w.seen + options_.heartbeat_timeout; silent >= now) next = std::min(next, silent);
  return next;
}

void Coordinator::decide(Seconds now) {
  listen_for_silence(now);
  if (deserted_ || phase_ == Phase::ended) return;
  if (phase_ == Phase::running && now >= no_hang_until_)
    for (const Hung& hung : find_hung(*current_, workers_, options_.hang, now)) evict(hung.peer, hung.reason, now);
  find_what_is_lost(now);
  if (phase_ == Phase::gathering) return gather(now);
  if (phase_ == Phase::starting) begin_generation_of_starters(now);
  if (phase_ == Phase::running) {
    send_state_to_joiners();
    maybe_propose(now);
    save_again(now);
  }
}

void Coordinator::drain(Worker& worker, Seconds now) {
  worker.draining = true;
  world_.event("drain", {{"worker", worker.id}, {"peer", worker.peer}});
  if (dismissible(worker)) dismiss(worker.peer);
  else maybe_propose(now);
}

std::string Coordinator::drain(int id, Seconds now) {
  for (auto& [peer, w] : workers_) {
    if (w.id != id || id == 0) continue;
    drain(w, now);
    return "";
  }
  return fmt::format("there is no worker {}", id);
}

void Coordinator::ask_checkpoint(Seconds now) {
  wishes_.checkpoint = true;
  maybe_propose(now);
}

void Coordinator::ask_stop(const std::string& reason, Seconds now) {
  if (wishes_.stop.empty()) wishes_.stop = reason;
  if (phase_ == Phase::starting || phase_ == Phase::gathering) end("stopped", reason);
  else if (deserted_)  // nobody would save anything
    end("failed", reason + ", while all who have the state are silent; go on from the newest checkpoint with --resume");
  else if (phase_ == Phase::holding) fence(reason, now);
  maybe_propose(now);
}

Json Coordinator::status(Seconds now) const {
  Json json = {{"phase", deserted_ ? "holding" : name_of(phase_)},
               {"generation", current_ ? current_->number : 0},
               {"step", completed()},
               {"steps", options_.steps},
               {"workers", Json::array()}};
  if (deserted_)
    json["holding"] = {
        {"reason", "all who have the state are silent"}, {"seconds", now - *deserted_}, {"limit", options_.hold}};
  else if (phase_ == Phase::holding)
    json["holding"] = {{"reason", fmt::format("fewer than {} workers", options_.min_workers)}};
  if (current_) json["data_plane"] = data_plane();
  for (const auto& [peer, w] : workers_) {
    Json worker = {{"id", w.id},
                   {"state", w.draining ? "draining" : elinvar::name_of(w.state)},
                   {"step", w.completed},
                   {"silent_seconds", now - w.seen},
                   {"about", description_of(w.about)}};
    const int index = current_ ? current_->index_of(peer) : -1;
    worker["virtual_ranks"] = index < 0 ? 0 : total(current_->members[static_cast<size_t>(index)].share);
    json["workers"].push_back(worker);
  }
  std::sort(json["workers"].begin(), json["workers"].end(),
            [](const Json& a, const Json& b) { return a["id"] < b["id"]; });
  return json;
}

}  // namespace elinvar
