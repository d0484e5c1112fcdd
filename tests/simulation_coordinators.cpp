// The simulator: coordinators' processes, and the run directory that they share.
#include "tests/simulation.h"

#include <algorithm>

namespace elinvar {

using Json = nlohmann::json;

Simulation::Head* Simulation::head() {  // the newest that lives
  for (auto it = heads_.rbegin(); it != heads_.rend(); ++it)
    if (it->second->alive) return it->second.get();
  return nullptr;
}

void Simulation::start_coordinator() {
  auto made = std::make_unique<Head>(*this);
  Head& h = *made;
  h.peer = next_peer_++;
  h.tenure = heads_.empty() ? 1 : heads_.rbegin()->first + 1;
  h.far = pick(2) == 1;
  Coordinator::Records records;
  for (const auto& [peer, p] : workers_)
    records.members_alive = records.members_alive || (p->alive && p->member->active());
  if (!records_.empty()) {
    records.newest = records_.rbegin()->second;
    if (records_.contains(records.newest->follows)) records.before = records_.at(records.newest->follows);
  }
  h.coordinator = std::make_unique<Coordinator>(CoordinatorOptions{.tenure = h.tenure,
                                                                   .endpoint = "sim",
                                                                   .steps = s_.steps,
                                                                   .initial_workers = s_.initial_workers,
                                                                   .min_workers = s_.min_workers,
                                                                   .plan = {.vranks = s_.vranks},
                                                                   .scaling = scaling_,
                                                                   .heartbeat_timeout = 2,
                                                                   .hang = {.floor = 1},
                                                                   .stuck = 1.5,
                                                                   .start_timeout = 3,
                                                                   .gather_timeout = 2,
                                                                   .redeal_every = 0.5,
                                                                   .hold = 10},
                                                h, saved_step_, records, now_);
  log(fmt::format("coordinator {} of tenure {} starts at {} records, members alive: {}", h.peer, h.tenure,
                  records_.size(), records.members_alive));
  heads_[h.tenure] = std::move(made);
  flush(h);
  tick(h);
}

void Simulation::tick(Head& h) {
  if (!h.alive || done_) return;
  if (now_ >= std::max(h.stalled_until, h.cut_until)) {
    // It looks only now and then whether it has a successor.
    if (now_ >= h.beat_at) {
      h.beat_at = now_ + kBeat;
      ++beats_[h.tenure];
      if (h.superseded()) h.coordinator->superseded();
    }
    h.coordinator->tick(now_);
    flush(h);
  }
  at(now_ + kTick, [this, &h] { tick(h); });
}

void Simulation::flush(Head& h) {
  act(h.peer, h.coordinator->take_actions());
  if (!h.coordinator->ending() || !h.alive) return;
  const auto& ending = *h.coordinator->ending();
  if (ending.what != "finished") {
    // Workers that it does not know of may go on without it; if nobody does, a person resumes.
    const bool stopped = ending.what == "stopped" && ending.reason == "every worker leaves";
    const auto says = [&](const char* text) { return ending.reason.find(text) != std::string::npos; };
    const bool alone = says("no worker is left") || says("no worker sees the run directory");
    const bool faulty = result_.flips > 0 && says("the audit of update");  // judged() has looked at it
    if (ending.what != "superseded" && !stopped && !alone && !faulty && !(s_.disk_fails && says("cannot be written")))
      violate("the job ended: {} {}", ending.what, ending.reason);
    return die(h, ending.what);
  }
  const int64_t steps = references_.back()->steps();
  if (s_.adaptive && !references_.back()->over()) violate("the run ends after step {}", steps);
  if (static_cast<int64_t>(ledger_.size()) != steps) violate("the ledger has {} steps", ledger_.size());
  if (saved_step_ != steps) violate("the last checkpoint is of step {}", saved_step_);
  done_ = true;
}

bool Simulation::create(const Generation& g) {
  if (records_.contains(g.number)) return false;
  int covered = 0, first = 0;
  for (const GenerationMember& m : g.members) {
    covered += total(m.share);
    first += total(m.first_share);
  }
  if (covered != s_.vranks || first != s_.vranks)
    violate("generation {} deals {} and {} virtual ranks", g.number, covered, first);
  if (s_.adaptive && !g.scaling) violate("generation {} says nothing of its batch", g.number);
  if (s_.adaptive && g.first_step >= 0) begin_history(g);
  if (g.scaling && g.first_step >= 0 && g.scaling->batch > 0) violate("a death changes the batch");
  if (g.members.size() == 1) end_what_lasts(*workers_.at(g.members[0].peer));
  records_[g.number] = g;
  result_.virtual_ranks.clear();
  for (const GenerationMember& m : g.members) result_.virtual_ranks.push_back(total(m.share));
  result_.generations = static_cast<int>(records_.size());
  return true;
}

std::optional<int64_t> Simulation::facts(Head& h, int64_t step, const Json& facts) {
  if (h.superseded()) return std::nullopt;
  const std::string text = facts.at("text").get<std::string>();
  if (!text.empty()) {
    if (text != references_.back()->facts.at(static_cast<size_t>(step)))
      violate("step {} has other facts: {}", step, text);
    h.waiting[step] = text;
  }
  for (auto next = h.waiting.begin(); next != h.waiting.end(); next = h.waiting.erase(next)) {
    if (next->first > static_cast<int64_t>(ledger_.size())) break;
    if (next->first == static_cast<int64_t>(ledger_.size())) ledger_.push_back(next->second);
  }
  return static_cast<int64_t>(ledger_.size()) - 1;
}

void Simulation::put_out(PeerId peer) {
  const Process& p = *workers_.at(peer);
  if (p.hung) result_.hang_lasted = now_ - p.busy_since;
}

void Simulation::checkpoint_part(Head& h, const Message& m) {
  if (h.superseded() || !h.coordinator->of_this_history(m)) return;
  const int64_t step = m.step;
  Checkpoint& c = h.saving[{m.generation, step}];
  c.parts = m.body.at("parts").get<int>();
  c.states[m.body.at("part").get<int>()] = m.body.at("state").get<uint64_t>();
  if (static_cast<int>(c.states.size()) < c.parts) return;
  for (const auto& [part, state] : c.states)
    if (state != references_.back()->state.at(static_cast<size_t>(step)))
      violate("a checkpoint of step {} holds another state", step);
  saved_step_ = std::max(saved_step_, step);
  h.coordinator->checkpoint_committed(step, now_);
}

}  // namespace elinvar
