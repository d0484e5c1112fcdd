// The simulator: coordinators' processes, and their shared run directory.
#include <nlohmann/json.hpp>
#include "tests/elastic/simulator/simulation.h"

#include <algorithm>

namespace elinvar {

void Simulation::Head::event(const std::string& name, const nlohmann::json& fields) {
  sim.log(name + " " + fields.dump());
  if (name == "audit") sim.judged(fields);
  sim.result_.state_lost += name == "state_lost";
  sim.result_.stuck += name == "stuck";
  if (name == "stuck") sim.log(sim.where());
  if (name == "fence" && fenced_at < 0) fenced_at = sim.now_;
  if (name == "generation" && fenced_at >= 0)
    sim.result_.longest_recovery = std::max(sim.result_.longest_recovery, sim.now_ - std::exchange(fenced_at, -1));
  if (name == "data_plane" && fields.contains("group")) sim.used_group(fields["group"]);
}

Simulation::Head* Simulation::head() {  // the newest coordinator that lives
  for (auto it = heads_.rbegin(); it != heads_.rend(); ++it)
    if (it->second->alive) return it->second.get();
  return nullptr;
}

void Simulation::start_coordinator() {
  auto made = std::make_unique<Head>(*this);
  Head& h = *made;
  h.peer = next_peer_++;
  h.term = heads_.empty() ? 1 : heads_.rbegin()->first + 1;
  h.far = pick(2) == 1;
  Coordinator::Records records;
  records.members_alive = std::ranges::any_of(workers_, [](const auto& entry) { return entry.second->alive; });
  if (!records_.empty()) {
    records.newest = records_.rbegin()->second;
    if (records_.contains(records.newest->follows)) records.before = records_.at(records.newest->follows);
  }
  // A coordinator that takes over goes on with the newest arrangement, a resumed job with any.
  const bool goes_on = records.members_alive && records.newest;
  const Arrangement first = goes_on ? *records.newest->arrangement : begins_with_;
  // It hears from the first worker how long segments take, if that one was started with several stages.
  SegmentCosts segments = segments_;
  if (s_.rearrangements > 0 && (first.pp == 1 || (goes_on && pick(2) == 0))) segments.seconds.clear();
  h.coordinator = std::make_unique<Coordinator>(CoordinatorOptions{.term = h.term,
                                                                   .endpoint = "sim",
                                                                   .steps = s_.steps,
                                                                   .initial_workers = s_.initial_workers,
                                                                   .min_workers = s_.min_workers,
                                                                   .arrangement = first,
                                                                   .virtual_shards = virtual_shards(),
                                                                   .segments = segments,
                                                                   .plan = {.vranks = s_.vranks},
                                                                   .scaling = scaling_,
                                                                   .heartbeat_timeout = 2,
                                                                   .hang = {.floor = 1},
                                                                   .stuck = 1.5,
                                                                   .start_timeout = 3,
                                                                   .gather_timeout = 2,
                                                                   .reassign_every = 0.5,
                                                                   .hold = 10},
                                                h, saved_step_, records, now_);
  log(fmt::format("coordinator {} of term {} starts at {} records, members alive: {}", h.peer, h.term, records_.size(),
                  records.members_alive));
  heads_[h.term] = std::move(made);
  flush(h);
  tick(h);
}

void Simulation::tick(Head& h) {
  if (!h.alive || done_) return;
  if (now_ >= std::max(h.stalled_until, h.cut_until)) {
    beat(h);
    h.coordinator->tick(now_);
    flush(h);
  }
  const double busy = std::max(h.stalled_until, h.cut_until), due = std::min(h.coordinator->tick_by(), h.beat_at);
  at(std::max(now_ < busy ? busy : due, now_ + kTick), [this, &h] { tick(h); });
}

// The coordinator checks only now and then whether it has a successor.
void Simulation::beat(Head& h) {
  if (now_ < h.beat_at) return;
  h.beat_at = now_ + kBeat;
  ++beats_[h.term];
  if (h.superseded()) h.coordinator->superseded();
}

void Simulation::receive(Head& h, const Message& message) {
  beat(h);
  if (const auto* saved = message.as<messages::Saved>()) checkpoint_part(h, message, *saved);
  else h.coordinator->receive(message, now_);
  h.coordinator->tick(now_);
  flush(h);
}

void Simulation::flush(Head& h) {
  act(h.peer, h.coordinator->take_actions());
  if (!h.coordinator->job().ending || !h.alive) return;
  const auto& ending = *h.coordinator->job().ending;
  if (ending.what != "finished") {
    // Workers that it does not know of may go on without it; if none does, a person resumes.
    const bool stopped = ending.what == "stopped";
    const auto says = [&](const char* text) { return ending.reason.find(text) != std::string::npos; };
    const bool alone = says("no worker is left") || says("no worker sees the run directory");
    const bool faulty = result_.flips > 0 && says("the audit of update");  // checked by judged()
    const bool differ = result_.flips > 0 && says("have different states");
    const bool deserted = says("while all who have the state are silent");
    if (ending.what != "superseded" && !stopped && !alone && !faulty && !differ && !deserted)
      violate("the job ended: {} {}", ending.what, ending.reason);
    result_.stopped += stopped;
    const auto& last = h.coordinator->job().current;
    if (stopped && last && last->stop && saved_step_ < std::min(last->first_step, references_.back()->steps()))
      violate("stopped at step {} with a checkpoint of step {}", last->first_step, saved_step_);
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
    // It has the virtual ranks of the member before it.
    if (m.place.shards.begin > 0 || m.place.stage > 0) continue;
    covered += total(m.share);
    first += total(m.first_share);
  }
  if (g.arrangement->replica() > 1) check_places(g);
  check_sharding(g);
  count_changes(g);
  if (covered != s_.vranks || first != s_.vranks)
    violate("generation {} assigns {} and {} virtual ranks", g.number, covered, first);
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

std::optional<int64_t> Simulation::facts(Head& h, const std::vector<StepFacts>& steps) {
  if (h.superseded()) return std::nullopt;
  for (const StepFacts& facts : steps) take_facts(h, facts);
  for (const auto& [after, state] : h.states)
    if (after <= static_cast<int64_t>(ledger_.size())) states_[after] = state;
  settle(h);
  return static_cast<int64_t>(ledger_.size()) - 1;
}

void Simulation::take_facts(Head& h, const StepFacts& facts) {
  const int64_t step = facts.step;
  if (!facts.digests.empty()) {
    if (facts.digests != references_.back()->facts.at(static_cast<size_t>(step)))
      violate("step {} has other facts: {}", step, facts.digests);
    h.waiting[step] = facts.digests;
  }
  for (auto next = h.waiting.begin(); next != h.waiting.end(); next = h.waiting.erase(next)) {
    if (next->first > static_cast<int64_t>(ledger_.size())) break;
    if (next->first == static_cast<int64_t>(ledger_.size())) ledger_.push_back(next->second);
  }
  if (!facts.state) return;
  const uint64_t state = h.states[step] = facts.state->high;
  if (state != references_.back()->state.at(static_cast<size_t>(step)))
    violate("the members agree on another state after step {}", step);
}

void Simulation::evict(PeerId peer) {
  const Process& p = *workers_.at(peer);
  if (p.hung) result_.hang_lasted = now_ - p.busy_since;
}

void Simulation::checkpoint_part(Head& h, const Message& m, const messages::Saved& saved) {
  if (h.superseded() || !h.coordinator->of_this_history(m)) return;
  const int64_t step = m.step;
  Checkpoint& c = h.saving[{m.generation, step}];
  c.parts = saved.parts;
  c.states[saved.part] = saved.digest.high;
  c.attested = saved.state.has_value();
  for (const auto& [name, value] : saved.digests)
    if (name == kForm) c.forms.insert(static_cast<HeldForm>(std::stoi(value)));
    else c.buckets[std::stoi(name)].insert(saved.part);
  settle(h);
}

// Returns nothing while it is not known yet.
std::optional<bool> Simulation::is_good(const Head& h, int64_t step, const Checkpoint& c) const {
  if (static_cast<int>(c.states.size()) < c.parts) return std::nullopt;
  const uint64_t first = c.states.begin()->second;
  if (c.forms.size() != 1) violate("members save the state of step {} in several forms", step);
  for (int b = 0; *c.forms.begin() != HeldForm::whole && b < buckets_.count(); ++b)
    if (!c.buckets.contains(b) || c.buckets.at(b).size() != 1)
      violate("bucket {} is in {} parts of the checkpoint of step {}", b,
              c.buckets.contains(b) ? c.buckets.at(b).size() : 0, step);
  const bool as_one = std::all_of(c.states.begin(), c.states.end(), [&](const auto& s) { return s.second == first; });
  const std::map<int64_t, uint64_t>& agreed = h.states.contains(step) ? h.states : states_;
  if (!agreed.contains(step)) return c.attested ? std::optional(as_one) : std::nullopt;
  return as_one && first == agreed.at(step);
}

void Simulation::settle(Head& h) {
  std::map<int64_t, bool> settled;
  for (auto it = h.saving.begin(); it != h.saving.end();) {
    const int64_t step = it->first.second;
    const std::optional<bool> good = is_good(h, step, it->second);
    if (!good || (*good && step > static_cast<int64_t>(ledger_.size()))) {
      ++it;
      continue;
    }
    if (*good && it->second.states.begin()->second != references_.back()->state.at(static_cast<size_t>(step)))
      violate("a checkpoint of step {} holds another state", step);
    result_.refused += !*good;
    settled[step] = settled[step] || *good;
    it = h.saving.erase(it);
  }
  for (const auto& [step, good] : settled) {
    if (good) saved_step_ = std::max(saved_step_, step);
    h.coordinator->checkpoint(step, good ? "" : "the workers have different states", now_);
  }
}

}  // namespace elinvar
