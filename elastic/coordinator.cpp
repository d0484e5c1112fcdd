#include "elastic/coordinator.h"

#include <algorithm>
#include <bit>

#include "tensor/check.h"

namespace elinvar {
namespace {
using Json = nlohmann::json;
}

Coordinator::Coordinator(const CoordinatorOptions& options, CoordinatorWorld& world, int64_t first_step,
                         const std::optional<Generation>& newest, bool members_alive, Seconds now)
    : options_(options), world_(world), first_step_(first_step), changed_(now) {
  start_until_ = now + options_.start_timeout;
  if (first_step > 0) final_checkpoint_ = first_step;
  on_file_ = first_step - 1;
  if (!newest) return;
  number_ = newest->number;
  next_id_ = newest->next_id;
  if (!members_alive) return;
  current_ = newest;
  phase_ = Phase::gathering;
  gather_until_ = now + options_.gather_timeout;
}

const char* Coordinator::name_of(Phase phase) {
  constexpr const char* kNames[] = {"gathering", "starting", "running", "recovering", "holding", "ended"};
  return kNames[static_cast<int>(phase)];
}

const char* Coordinator::name_of(State state) {
  constexpr const char* kNames[] = {"joining", "learning", "ready", "member", "leaving"};
  return kNames[static_cast<int>(state)];
}

int64_t Coordinator::completed() const {
  int64_t most = first_step_;
  for (const auto& [peer, w] : workers_)
    if (w.state == State::member || w.state == State::leaving || w.state == State::ready)
      most = std::max(most, w.completed);
  return most;
}

void Coordinator::send(PeerId peer, Message message) {
  actions_.push_back({Action::What::send, peer, {}, std::move(message)});
}

std::vector<Action> Coordinator::take_actions() { return std::exchange(actions_, {}); }

// --- What comes.

void Coordinator::receive(const Message& m, Seconds now) {
  if (phase_ == Phase::ended) return;
  if (m.kind == "hello") return hello(m, now);
  const auto found = workers_.find(m.sender);
  if (found == workers_.end()) {
    if (m.kind == "facts") on_file_ = world_.facts(m.step, m.body);  // late, but true
    // It was put out, or speaks to a coordinator that it has not introduced itself to.
    if (m.kind == "alive")
      send(m.sender,
           {.kind = "release", .body = {{"what", "expelled"}, {"reason", "the others went on without this worker"}}});
    return;
  }
  Worker& worker = found->second;
  worker.seen = now;
  if (m.kind == "facts") return facts(m, now);
  progress(worker, m, now);
  if (phase_ == Phase::ended || !workers_.contains(m.sender)) return;
  if (m.kind == "ready") {
    // One that restored the first state is ready only for the first generation; later it has to learn.
    const int64_t attempt = m.body.at("attempt").get<int64_t>();
    if (phase_ == Phase::starting ? attempt == 0 : worker.state == State::fed && attempt == worker.attempt) {
      worker.state = State::ready;
      world_.event("ready", {{"peer", worker.peer}, {"step", m.step}});
    }
    if (phase_ == Phase::starting) begin_generation_of_starters(now);
    else if (phase_ == Phase::holding) fence("a worker has come", now);
    else maybe_propose(now);
  } else if (m.kind == "missed") {
    const auto joiner = workers_.find(m.body.at("peer").get<PeerId>());
    if (joiner != workers_.end() && joiner->second.state == State::fed) joiner->second.state = State::joining;
    feed_joiners();
  } else if (m.kind == "fenced") {
    if (phase_ != Phase::fencing || !fence_targets_.contains(worker.peer)) return;
    const int64_t promised = m.body.at("promised").get<int64_t>();
    if (promised < number_) return;
    if (promised > number_) {  // another coordinator was here
      number_ = promised;
      fence(fence_reason_, now);
      return;
    }
    worker.fenced = m.body;
    worker.completed = m.step;
    conclude_fence(now);
  } else if (m.kind == "suspect") {
    const PeerId peer = m.body.at("peer").get<PeerId>();
    if (workers_.contains(peer)) gone(peer, m.body.at("reason").get<std::string>(), now);
  } else if (m.kind == "drain") {
    worker.draining = true;
    world_.event("drain", {{"worker", worker.id}});
    maybe_propose(now);
  } else if (m.kind == "failed") {
    end("failed", fmt::format("worker {}: {}", worker.id, m.body.at("reason").get<std::string>()));
  }
}

void Coordinator::hello(const Message& m, Seconds now) {
  const Json& about = m.body;
  actions_.push_back({Action::What::connect, m.sender, about.at("endpoint").get<std::string>(), {}});
  const bool active = about.at("active").get<bool>();
  std::string reason = gone_.contains(m.sender) ? "it was put out before" : world_.refuse(about);
  // Those of the newest record, or of the one before if it is not known yet whether the planned change took place.
  const bool of_this = current_ && (current_->index_of(m.sender) >= 0 ||
                                    (phase_ == Phase::gathering && m.generation == current_->follows));
  if (active && reason.empty() && !of_this) reason = "it belongs to a generation that is over";
  if (!reason.empty()) {
    world_.event("refused", {{"peer", m.sender}, {"reason", reason}});
    send(m.sender, {.kind = "refused", .body = {{"reason", reason}}});
    return;
  }
  Worker& worker = workers_[m.sender];
  const bool known = worker.peer != 0;
  worker.peer = m.sender;
  worker.endpoint = about.at("endpoint").get<std::string>();
  worker.about = about;
  worker.seen = now;
  worker.completed = m.step;
  worker.generation = m.generation;
  number_ = std::max({number_, about.at("promised").get<int64_t>(), m.generation});
  if (active) {
    worker.state = State::member;
    worker.id = about.at("id").get<int>();
    next_id_ = std::max(next_id_, worker.id + 1);
    if (phase_ == Phase::fencing || phase_ == Phase::holding) return fence("a member has come back", now);
    return tick(now);
  }
  if (known && worker.state == State::member) return;
  worker.state = State::joining;
  world_.event("hello", {{"peer", worker.peer}, {"endpoint", worker.endpoint}});
  if (phase_ == Phase::starting) {
    if (about.at("loaded").get<bool>() && m.step == first_step_) {
      worker.state = State::ready;
      return begin_generation_of_starters(now);
    }
    send(worker.peer, {.kind = "welcome", .body = {{"restore", first_step_}}});
    return;
  }
  send(worker.peer, {.kind = "welcome"});
  feed_joiners();
}

void Coordinator::progress(Worker& worker, const Message& m, Seconds now) {
  worker.generation = std::max(worker.generation, m.generation);
  worker.completed = std::max(worker.completed, m.step);
  if (proposal_ && phase_ == Phase::running && m.generation == proposal_->number) switched(now);
  release_leavers();
}

void Coordinator::facts(const Message& m, Seconds now) {
  Worker& worker = workers_.at(m.sender);
  progress(worker, m, now);
  on_file_ = world_.facts(m.step, m.body);
  if (m.step >= options_.steps) final_ = true;
  for (const auto& [peer, w] : workers_)
    if (w.state == State::member || w.state == State::leaving) send(peer, {.kind = "ack", .step = on_file_});
  if (m.body.contains("seconds") && current_ && m.generation == current_->number) {
    const Json& seconds = m.body["seconds"];
    for (size_t i = 0; i < seconds.size() && i < current_->members.size(); ++i) {
      const auto member = workers_.find(current_->members[i].peer);
      const double s = seconds[i].get<double>();
      if (member == workers_.end() || s <= 0) continue;
      double& speed = member->second.speed;
      speed = speed == 0 ? 1 / s : 0.7 * speed + 0.3 / s;
    }
  }
  release_leavers();
  if (whole()) end("finished", "");
  else maybe_propose(now);
}

// Every step is on file, and the last state saved.
bool Coordinator::whole() const {
  return final_ && final_checkpoint_ >= options_.steps && on_file_ >= options_.steps - 1;
}

void Coordinator::checkpoint_committed(int64_t step, Seconds now) {
  final_checkpoint_ = std::max(final_checkpoint_, step);
  world_.event("checkpoint", {{"step", step}});
  if (phase_ == Phase::ended) return;
  if (whole()) end("finished", "");
  else if (current_ && current_->stop && step == std::min(current_->first_step, options_.steps))
    end("stopped", stop_asked_);
  tick(now);
}

// Whether the worker may be computing in a generation that counts, so that its death must be answered by a fence.
bool Coordinator::concerned(const Worker& worker) const {
  return worker.state == State::member || worker.state == State::leaving ||
         (proposal_ && proposal_->index_of(worker.peer) >= 0);
}

void Coordinator::lost(PeerId peer, const std::string& reason, Seconds now) {
  if (phase_ != Phase::ended && workers_.contains(peer)) gone(peer, reason, now);
}

void Coordinator::gone(PeerId peer, const std::string& reason, Seconds now) {
  const Worker worker = workers_.at(peer);
  workers_.erase(peer);
  gone_.insert(peer);
  fence_targets_.erase(peer);
  actions_.push_back({Action::What::disconnect, peer, {}, {}});
  world_.event("lost", {{"worker", worker.id}, {"peer", peer}, {"reason", reason}});
  unfeed(peer);
  if (phase_ == Phase::fencing) return conclude_fence(now);
  if (phase_ == Phase::running && concerned(worker))
    return fence("lost worker " + std::to_string(worker.id) + ": " + reason, now);
  if (phase_ == Phase::holding) return conclude_fence(now);
  if (phase_ == Phase::starting && workers_.empty()) end("failed", "no worker is left: " + reason);
}

void Coordinator::tick(Seconds now) {
  if (phase_ == Phase::ended) return;
  std::vector<PeerId> silent;
  for (const auto& [peer, w] : workers_)
    if (now - w.seen > options_.heartbeat_timeout) silent.push_back(peer);
  for (const PeerId peer : silent)
    if (workers_.contains(peer) && phase_ != Phase::ended)
      gone(peer, fmt::format("silent for {:.1f} s", options_.heartbeat_timeout), now);
  if (phase_ == Phase::gathering) {
    const bool all = std::all_of(current_->members.begin(), current_->members.end(),
                                 [&](const GenerationMember& m) { return workers_.contains(m.peer); });
    if (!all && now < gather_until_) return;
    const bool any = std::any_of(workers_.begin(), workers_.end(),
                                 [](const auto& entry) { return entry.second.state == State::member; });
    if (any) return fence("another coordinator", now);
    phase_ = Phase::starting;
    start_until_ = now + options_.start_timeout;
    current_.reset();
    for (auto& [peer, w] : workers_) send(peer, {.kind = "welcome", .body = {{"restore", first_step_}}});
    return;
  }
  if (phase_ == Phase::starting) begin_generation_of_starters(now);
  if (phase_ == Phase::running) {
    feed_joiners();
    maybe_propose(now);
  }
}

// --- Generations.

std::vector<double> Coordinator::speeds_of(const std::vector<GenerationMember>& members) const {
  std::vector<double> speeds;
  double sum = 0;
  int known = 0;
  for (const GenerationMember& m : members) {
    const auto worker = workers_.find(m.peer);
    speeds.push_back(worker == workers_.end() ? 0 : worker->second.speed);
    sum += speeds.back();
    known += speeds.back() > 0;
  }
  for (double& speed : speeds)
    if (speed == 0) speed = known > 0 ? sum / known : 1;
  return speeds;
}

Generation Coordinator::next_generation(const std::vector<PeerId>& peers, const std::string& reason) {
  Generation g{.number = number_ + 1, .run = options_.run, .members = {}, .reason = reason};
  for (const PeerId peer : peers) {
    Worker& worker = workers_.at(peer);
    if (worker.id == 0) worker.id = next_id_++;
    g.members.push_back({.id = worker.id, .peer = peer, .endpoint = worker.endpoint, .share = {}, .first_share = {}});
  }
  std::sort(g.members.begin(), g.members.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  const auto shares = deal(options_.vranks, speeds_of(g.members));
  for (size_t i = 0; i < shares.size(); ++i) g.members[i].share = g.members[i].first_share = shares[i];
  g.next_id = next_id_;
  return g;
}

bool Coordinator::create(const Generation& g) {
  if (!world_.create(g)) {
    end("superseded", fmt::format("generation {} was made by another coordinator", g.number));
    return false;
  }
  number_ = g.number;
  Json members = Json::array();
  for (const GenerationMember& m : g.members) members.push_back(m.id);
  world_.event("generation", {{"number", g.number}, {"members", members}, {"reason", g.reason}});
  return true;
}

void Coordinator::begin_generation_of_starters(Seconds now) {
  std::vector<PeerId> ready;
  for (const auto& [peer, w] : workers_)
    if (w.state == State::ready) ready.push_back(peer);
  const int wanted =
      now < start_until_ ? std::max(options_.initial_workers, options_.min_workers) : options_.min_workers;
  if (static_cast<int>(ready.size()) < wanted) return;
  Generation g = next_generation(ready, "start");
  g.first_step = first_step_;
  if (!create(g)) return;
  current_ = g;
  phase_ = Phase::running;
  changed_ = now;
  for (const PeerId peer : ready) {
    workers_.at(peer).state = State::member;
    send(peer,
         {.kind = "start", .generation = g.number, .body = {{"record", to_json(g)}, {"completed", Json::object()}}});
  }
}

void Coordinator::maybe_propose(Seconds now) {
  if (phase_ != Phase::running || proposal_ || final_ || current_->stop) return;
  std::vector<PeerId> stay, join;
  std::string reason;
  const auto because = [&](const std::string& what) { reason += (reason.empty() ? "" : ", ") + what; };
  for (const GenerationMember& m : current_->members) {
    const Worker& worker = workers_.at(m.peer);
    if (worker.draining) because(fmt::format("worker {} leaves", worker.id));
    else stay.push_back(m.peer);
  }
  for (const auto& [peer, w] : workers_) {
    if (w.state != State::ready || w.draining || static_cast<int>(stay.size() + join.size()) >= options_.max_workers)
      continue;
    join.push_back(peer);
    because("a worker joins");
  }
  std::vector<PeerId> members = stay;
  members.insert(members.end(), join.begin(), join.end());
  bool stop = !stop_asked_.empty();
  if (stop) because(stop_asked_);
  if (members.empty()) {  // everyone leaves: to those who are about to come, or the state is saved first
    for (const auto& [peer, w] : workers_)
      if (w.state == State::fed || w.state == State::joining) return;
    stop = true;
    if (stop_asked_.empty()) stop_asked_ = "every worker leaves";
    for (const GenerationMember& m : current_->members) members.push_back(m.peer);
  }
  if (checkpoint_asked_) because("a checkpoint was asked for");
  if (reason.empty()) {
    // The same members: only to deal anew, where that pays.
    if (now - changed_ < options_.redeal_every) return;
    std::vector<std::vector<Interval>> shares;
    for (const GenerationMember& m : current_->members) shares.push_back(m.share);
    const std::vector<double> speeds = speeds_of(current_->members);
    const double before = step_time(shares, speeds), after = step_time(deal(options_.vranks, speeds), speeds);
    if (before < after * options_.redeal_gain) return;
    reason = fmt::format("other shares: a step takes {:.0f} % of the time", 100 * after / before);
  }
  Generation g = next_generation(members, reason);
  g.follows = current_->number;
  g.stop = stop;
  g.checkpoint = stop || checkpoint_asked_;
  if (!create(g)) return;
  checkpoint_asked_ = false;
  changed_ = now;
  proposal_ = g;
  const Message message{.kind = "propose", .generation = g.number, .body = to_json(g)};
  for (const PeerId peer : join) send(peer, message);
  for (const GenerationMember& m : current_->members) send(m.peer, message);
}

// A trailer showed that everyone held the proposal, and somebody has told.
void Coordinator::switched(Seconds now) {
  const Generation before = *current_;
  current_ = *proposal_;
  proposal_.reset();
  changed_ = now;
  // The step of the switch: nobody can be further than one step into it.
  int64_t first = INT64_MAX;
  for (const auto& [peer, w] : workers_)
    if (w.generation == current_->number) first = std::min(first, w.completed);
  current_->first_step = first;
  for (const GenerationMember& m : current_->members) workers_.at(m.peer).state = State::member;
  for (const GenerationMember& m : before.members)
    if (current_->index_of(m.peer) < 0) workers_.at(m.peer).state = State::leaving;
  world_.event("switched", {{"generation", current_->number}, {"step", first}});
  // Whoever learns from one that has left the generation gets no more results from it.
  for (auto& [peer, w] : workers_)
    if ((w.state == State::fed || w.state == State::ready) && current_->index_of(w.copier) < 0)
      w.state = State::joining;
  feed_joiners();
  release_leavers();
}

// One that leaves may be the only one with a result that others lack, until they all are in a generation without it,
// or with the facts of the last step before.
void Coordinator::release_leavers() {
  if (phase_ != Phase::running || on_file_ < std::min(current_->first_step, options_.steps) - 1) return;
  for (const GenerationMember& m : current_->members) {
    const auto worker = workers_.find(m.peer);
    if (worker == workers_.end() || worker->second.generation < current_->number) return;
  }
  for (auto it = workers_.begin(); it != workers_.end();) {
    if (it->second.state != State::leaving) {
      ++it;
      continue;
    }
    send(it->first, {.kind = "release", .body = {{"what", "left"}, {"reason", "it was asked to leave"}}});
    world_.event("left", {{"worker", it->second.id}});
    gone_.insert(it->first);
    it = workers_.erase(it);
  }
}

// --- Death.

void Coordinator::fence(const std::string& reason, Seconds now) {
  ++number_;
  phase_ = Phase::fencing;
  fence_reason_ = reason;
  fence_targets_.clear();
  for (auto& [peer, w] : workers_) {
    if (!concerned(w) && w.state != State::ready) continue;
    w.fenced.reset();
    fence_targets_.insert(peer);
    send(peer, {.kind = "fence", .generation = number_});
  }
  proposal_.reset();
  world_.event("fence", {{"number", number_}, {"reason", reason}});
  conclude_fence(now);
}

void Coordinator::conclude_fence(Seconds now) {
  for (const PeerId peer : fence_targets_)
    if (!workers_.at(peer).fenced) return;
  int64_t newest = -1;
  bool any = false;
  for (const PeerId peer : fence_targets_) {
    const Worker& w = workers_.at(peer);
    if (w.fenced->at("loaded").get<bool>()) newest = std::max(newest, w.completed);
    any = any || (w.fenced->at("active").get<bool>() && w.completed == newest);
  }
  if (newest < 0) return end("failed", "no worker is left; go on with --resume");

  // Those who have the newest step or lack only its last result, which the others still have. (Learners alone keep no
  // results for others.)
  std::vector<PeerId> members;
  Json completed = Json::object();
  for (const PeerId peer : fence_targets_) {
    Worker& w = workers_.at(peer);
    if (!w.fenced->at("loaded").get<bool>()) continue;
    completed[std::to_string(peer)] = w.completed;
    const bool leaver = w.state == State::leaving && !w.fenced->at("active").get<bool>();
    if (!leaver && w.completed >= newest - (any ? 1 : 0)) members.push_back(peer);
  }
  if (static_cast<int>(members.size()) < options_.min_workers) {
    if (phase_ != Phase::holding)
      world_.event("hold", {{"workers", members.size()}, {"min_workers", options_.min_workers}});
    phase_ = Phase::holding;
    restart_learners();
    return;
  }
  Generation g = next_generation(members, fence_reason_);
  g.number = number_;
  g.first_step = newest;
  g.stop = !stop_asked_.empty();
  g.checkpoint = g.stop || newest >= options_.steps;  // a part of the last one may be lost
  std::vector<std::vector<Interval>> kept;
  for (const GenerationMember& m : g.members) {
    const Worker& w = workers_.at(m.peer);
    kept.emplace_back();
    if (w.completed != newest) continue;
    for (const Json& i : w.fenced->at("share")) kept.back().push_back({i.at(0).get<int>(), i.at(1).get<int>()});
  }
  const auto first = deal_orphans(options_.vranks, std::move(kept), speeds_of(g.members));
  for (size_t i = 0; i < first.size(); ++i) g.members[i].first_share = first[i];
  if (!create(g)) return;
  current_ = g;
  phase_ = Phase::running;
  changed_ = now;
  for (auto& [peer, w] : workers_) {
    if (g.index_of(peer) >= 0) {
      w.state = State::member;
    } else if (w.state == State::ready) {
      w.state = State::joining;  // it fell behind: it learns again
    }
  }
  const Message message{
      .kind = "start", .generation = g.number, .body = {{"record", to_json(g)}, {"completed", completed}}};
  for (const GenerationMember& m : g.members) send(m.peer, message);
  restart_learners();
}

// --- Joining.

// After a death a learner's feeder may be the one that is gone.
void Coordinator::restart_learners() {
  for (auto& [peer, w] : workers_)
    if (w.state == State::fed) w.state = State::joining;
  feed_joiners();
}

void Coordinator::feed_joiners() {
  if ((phase_ != Phase::running && phase_ != Phase::holding) || (final_ && phase_ == Phase::running)) return;
  for (auto& [peer, w] : workers_)
    if (w.state == State::joining) feed(w);
}

void Coordinator::feed(Worker& worker) {
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
  unfeed(worker.peer);
  worker.state = State::fed;
  // A boundary that none of them has passed when it hears of it; each time that was too soon it is put off further.
  const int64_t boundary =
      phase_ == Phase::holding ? now : std::min(options_.steps, now + (int64_t{2} << std::min(worker.feeds, 16)));
  ++worker.feeds;
  worker.attempt = (number_ << 20) + worker.feeds;  // grows also from one coordinator to the next, which fences first
  for (size_t i = 0; i < feeders.size(); ++i)
    send(feeders[i], {.kind = "feed",
                      .step = boundary,
                      .body = {{"peer", worker.peer},
                               {"endpoint", worker.endpoint},
                               {"part", i},
                               {"parts", feeders.size()},
                               {"attempt", worker.attempt},
                               {"copies", i == 0}}});
}

void Coordinator::unfeed(PeerId peer) {
  for (const auto& [to, w] : workers_)
    if (w.state == State::member) send(to, {.kind = "unfeed", .body = {{"peer", peer}}});
}

// --- The end, and people.

void Coordinator::end(const std::string& what, const std::string& reason) {
  phase_ = Phase::ended;
  ending_ = Ending{what, reason};
  world_.event("end", {{"what", what}, {"reason", reason}});
  if (what == "superseded") return;
  for (const auto& [peer, w] : workers_) send(peer, {.kind = "release", .body = {{"what", what}, {"reason", reason}}});
}

std::string Coordinator::drain(int id, Seconds now) {
  for (auto& [peer, w] : workers_) {
    if (w.id != id || id == 0) continue;
    w.draining = true;
    world_.event("drain", {{"worker", id}});
    maybe_propose(now);
    return "";
  }
  return fmt::format("there is no worker {}", id);
}

void Coordinator::ask_checkpoint(Seconds now) {
  checkpoint_asked_ = true;
  maybe_propose(now);
}

void Coordinator::ask_stop(const std::string& reason, Seconds now) {
  if (stop_asked_.empty()) stop_asked_ = reason;
  if (phase_ == Phase::starting || phase_ == Phase::gathering) end("stopped", reason);
  maybe_propose(now);
}

Json Coordinator::status(Seconds now) const {
  Json json = {{"phase", name_of(phase_)},
               {"generation", current_ ? current_->number : 0},
               {"step", completed()},
               {"steps", options_.steps},
               {"workers", Json::array()}};
  for (const auto& [peer, w] : workers_) {
    Json worker = {{"id", w.id},
                   {"state", w.draining ? "draining" : name_of(w.state)},
                   {"step", w.completed},
                   {"silent_seconds", now - w.seen},
                   {"about", w.about}};
    const int index = current_ ? current_->index_of(peer) : -1;
    worker["virtual_ranks"] = index < 0 ? 0 : total(current_->members[static_cast<size_t>(index)].share);
    json["workers"].push_back(worker);
  }
  return json;
}

}  // namespace elinvar
