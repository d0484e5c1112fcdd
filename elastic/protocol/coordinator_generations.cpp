// The coordinator: how generations begin and change as planned.
#include "elastic/protocol/coordinator.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar {

using Json = nlohmann::json;
using State = Worker::State;

// What those that join are dealt of the first step, beside what their speed would allow: they begin with it later than
// the others, since the result of the step before comes to them last.
constexpr double kFirstShare = 0.4;

Generation Coordinator::next_generation(const std::vector<PeerId>& peers, const std::string& reason,
                                        const std::vector<PeerId>& joining) {
  Generation g{.number = number_ + 1, .run = options_.run, .members = {}, .reason = reason};
  for (const PeerId peer : peers) {
    Worker& worker = workers_.at(peer);
    if (worker.id == 0) worker.id = next_id_++;
    g.members.push_back({.id = worker.id, .peer = peer, .endpoint = worker.endpoint, .share = {}, .first_share = {}});
  }
  std::sort(g.members.begin(), g.members.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  std::vector<double> speeds = speeds_of(g.members, workers_);
  const auto shares = assign(options_.plan.vranks, speeds);
  for (size_t i = 0; i < speeds.size(); ++i)
    if (std::find(joining.begin(), joining.end(), g.members[i].peer) != joining.end()) speeds[i] *= kFirstShare;
  const auto first = assign(options_.plan.vranks, speeds);
  for (size_t i = 0; i < shares.size(); ++i) {
    g.members[i].share = shares[i];
    g.members[i].first_share = first[i];
  }
  g.next_id = next_id_;
  g.group = why_no_group(peers).empty();
  if (adaptive()) {
    if (base_workers_ == 0) base_workers_ = static_cast<int>(peers.size());
    g.scaling = GenerationScaling{.base_workers = base_workers_, .history = history_};
    if (completed() <= recorded_.steps) g.scaling->recorded = recorded_.changes;
  }
  return g;
}

// What steps of the generation take, for adaptive scaling.
void Coordinator::measure(const StepFacts& facts) {
  const UpdateFacts& update = *facts.update;
  if (!adaptive() || update.batch_size == 0) return;
  batch_ = update.batch_size;
  if (update.samples != batch_ || update.seconds.size() != current_->members.size()) return;
  MeasuredStep step{.batch = batch_,
                    .vranks = options_.plan.vranks,
                    .reduce_seconds = update.reduce_seconds,
                    .leaf_seconds = update.seconds};
  for (size_t i = 0; i < update.seconds.size(); ++i)
    step.leaves.push_back(total(current_->share(static_cast<int>(i), facts.step)));
  profile_ = measured(profile_, step);
}

// What so many workers should have, unless the ledger still says what they have.
std::optional<Scaled> Coordinator::other_batch(size_t workers, bool larger) const {
  if (!adaptive() || completed() < recorded_.steps) return std::nullopt;
  const Scaled scaled =
      scale(options_.scaling, options_.plan.vranks, base_workers_, static_cast<int>(workers), profile_);
  if (larger ? scaled.batch <= batch_ : scaled.batch == batch_) return std::nullopt;
  return scaled;
}

bool Coordinator::create(const Generation& g, Seconds now) {
  if (!world_.create(g)) {
    number_ = g.number;
    if (world_.superseded()) superseded();
    else if (phase_ != Phase::starting)
      fence(fmt::format("generation {} was still made by another coordinator", g.number), now);
    return false;
  }
  number_ = g.number;
  Json members = Json::array();
  for (const GenerationMember& m : g.members) members.push_back(m.id);
  Json fields = {{"number", g.number}, {"members", members}, {"reason", g.reason}};
  if (g.scaling && g.scaling->batch > 0) fields["batch_size"] = g.scaling->batch;
  if (g.group) fields["group"] = true;
  if (g.group) group_trouble_.clear();
  world_.event("generation", fields);
  return true;
}

void Coordinator::begin_generation_of_starters(Seconds now) {
  std::vector<PeerId> ready;
  int blind = 0;  // who waits for others to send it their state
  for (const auto& [peer, w] : workers_) {
    if (w.state == State::ready) ready.push_back(peer);
    else blind += w.blind;
  }
  const int have = static_cast<int>(ready.size());
  if (blind > 0 && blind == static_cast<int>(workers_.size()) && now >= start_until_)
    return end("failed", fmt::format("no worker sees the run directory, to begin with the state after step {} in it",
                                     first_step_));
  const int wanted =
      now < start_until_ ? std::max(options_.initial_workers, options_.min_workers) : options_.min_workers;
  if (have == 0 || have + blind < wanted) return;
  if (have < options_.min_workers) return fence("too few workers see the run directory", now);
  Generation g = next_generation(ready, "start");
  g.first_step = first_step_;
  if (g.scaling) g.scaling->scaling_state = recorded_.scaling_state;
  if (!create(g, now)) return;
  current_ = g;
  phase_ = Phase::running;
  changed_ = now;
  for (const PeerId peer : ready) {
    workers_.at(peer).state = State::member;
    send(peer, messages::Start{.record = g}, g.number);
  }
}

void Coordinator::maybe_propose(Seconds now) {
  if (phase_ != Phase::running || proposal_ || final_ || current_->stop || current_->trial) return;
  const bool may_reassign = now - changed_ >= options_.reassign_every;
  std::optional<Plan> plan = elinvar::plan(*current_, workers_, wishes_, options_.plan, may_reassign);
  std::optional<Scaled> scaled;
  if (plan && !plan->stop && (!plan->joining.empty() || plan->members.size() != current_->members.size())) {
    scaled = other_batch(plan->members.size(), /*larger=*/false);
  } else if (!plan && may_reassign) {
    // What could not be measured before the last change, or not well, can be now.
    scaled = other_batch(current_->members.size(), /*larger=*/true);
    if (scaled) plan = Plan{.members = {}, .joining = {}, .reason = "other measurements"};
    for (const GenerationMember& m : current_->members)
      if (scaled) plan->members.push_back(m.peer);
  }
  if (!plan) return;
  Generation g = next_generation(plan->members, plan->reason, plan->joining);
  if (scaled) {
    g.scaling->batch = scaled->batch;
    g.reason += ", " + scaled->reason;
  }
  g.follows = current_->number;
  g.group_from = group_to_keep(g);
  g.stop = plan->stop;
  g.checkpoint = plan->checkpoint;
  if (!create(g, now)) return;
  if (g.stop && wishes_.stop.empty()) wishes_.stop = "every worker leaves";
  wishes_.checkpoint = false;
  changed_ = now;
  proposal_ = g;
  for (const PeerId peer : plan->joining) send(peer, messages::Propose{g}, g.number);
  for (const GenerationMember& m : current_->members) send(m.peer, messages::Propose{g}, g.number);
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
  if (current_->scaling && current_->scaling->batch > 0) batch_ = current_->scaling->batch;
  for (const GenerationMember& m : current_->members) workers_.at(m.peer).state = State::member;
  for (const GenerationMember& m : before.members)
    if (current_->index_of(m.peer) < 0) workers_.at(m.peer).state = State::leaving;
  world_.event("switched", {{"generation", current_->number}, {"step", first}});
  // Whoever learns from one that has left the generation gets no more results from it.
  for (auto& [peer, w] : workers_)
    if ((w.state == State::receiving || w.state == State::ready) && current_->index_of(w.copier) < 0)
      w.state = State::joining;
  send_state_to_joiners();
  release_leavers();
  maybe_propose(now);  // what had to wait for this change
}

// One that leaves may be the only one with a result that others lack, until they all are in a generation without it:
// then they have the result of the last step before, and will make its facts from that. After the last step it has a
// part of the last checkpoint, and stays to the end.
void Coordinator::release_leavers() {
  if (phase_ != Phase::running || current_->first_step > options_.steps) return;
  for (const GenerationMember& m : current_->members) {
    const auto worker = workers_.find(m.peer);
    if (worker == workers_.end() || worker->second.generation < current_->number) return;
    if (worker->second.completed < current_->first_step) return;
  }
  std::vector<PeerId> leaving;
  for (const auto& [peer, w] : workers_)
    if (w.state == State::leaving) leaving.push_back(peer);
  for (const PeerId peer : leaving) dismiss(peer);
}

}  // namespace elinvar
