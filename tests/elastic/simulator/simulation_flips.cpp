// The simulator: flips bits in audited data and checks which workers are blamed.
#include <nlohmann/json.hpp>
#include <algorithm>
#include <bit>

#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

using Json = nlohmann::json;

namespace {

// Every damage is different: two equal ones would not differ in an audit.
void flip_bits(std::vector<Tensor>& tensors, uint32_t bits, uint64_t which) {
  std::vector<Tensor*> own;
  for (Tensor& tensor : tensors)
    if (tensor.defined()) own.push_back(&tensor);
  Tensor& tensor = *own[which % own.size()];
  Tensor damaged = tensor.clone();
  float& element = damaged.data<float>()[which / 8 % static_cast<uint64_t>(damaged.numel())];
  element = std::bit_cast<float>(std::bit_cast<uint32_t>(element) ^ bits);
  tensor = damaged;
}

}  // namespace

// Something will flip in a worker the next time that it computes what an audit looks at. A lasting fault that has begun
// does not turn into another one: is_the_last_right() relies on it.
void Simulation::arm() {
  Node* worker = any_of(workers_);
  if (!worker) return;
  Process& p = *workers_.at(worker->peer);
  const auto flip = static_cast<Flip>(1 + pick(s_.lasting_faults ? 4 : 2));
  if (p.flip != Flip::always || !p.damaged) p.flip = flip;
}

void Simulation::damaged(Process& p, const char* what, int64_t step) {
  p.damaged = true;
  if (p.flip != Flip::always) p.flip = Flip::none;
  ++result_.flips;
  log(fmt::format("a bit of {} flips in {} at update {}", what, p.peer, step + 1));
}

uint32_t Simulation::next_damage() const { return static_cast<uint32_t>(result_.flips) + 1; }

// A lasting fault cannot be found if there is only one worker, or if others get their state from this one.
bool Simulation::may_last(const Process& p) const {
  return p.member->position().members() > 1 && std::all_of(workers_.begin(), workers_.end(), [](const auto& entry) {
           return !entry.second->alive || entry.second->member->position().active();
         });
}

// Whether all other members have lasting faults. If this one had one too, no audit could tell (PROTOCOL.md, "Audit").
bool Simulation::is_the_last_right(const Process& p) const {
  bool others = false;
  for (const auto& [peer, q] : workers_) {
    if (q.get() == &p || !q->alive || !q->member->position().active()) continue;
    if (!q->corrupt && !(q->flip == Flip::always && q->damaged)) return false;
    others = true;
  }
  return others;
}

bool Simulation::computes_audited(const Process& p, int64_t step, int vrank) const {
  const MemberPosition& at = p.member->position();
  const bool now = at.active() && at.step == step && at.completed == step;
  return now && audited(audit_, step) && vrank == audited_vrank(audit_, step, s_.vranks) && !is_the_last_right(p);
}

// Whether a lasting fault in what this member computes with others, and then again for the audit, shows in no claim.
bool Simulation::audits_itself(const Process& p, int64_t step) const {
  const MemberPosition& at = p.member->position();
  return audit_roles(audit_, *at.generation, step, s_.vranks).auditor == at.index;
}

RankGradient Simulation::compute(Process& p, int64_t step, int vrank, const ScalingState& scaling_state,
                                 bool together) {
  const auto right = [&] {
    RankGradient gradient = in_tensors(make_gradient(p.state, step, vrank, s_.vranks, scaling_state));
    if (together) keep_own(gradient, p.together->place);
    return gradient;
  };
  RankGradient gradient = right();
  if (gradient.gradients.empty() || !computes_audited(p, step, vrank)) return gradient;
  if (p.flip == Flip::state && may_last(p)) {
    do {
      p.state = mix(p.state ^ p.peer);
      gradient = right();
    } while (gradient.gradients.empty());  // empty gradients would be equal
    p.corrupt = true;
    p.corrupt_in = p.member->position().number();
    damaged(p, "the state", step);
    return gradient;
  }
  if (std::ranges::none_of(gradient.gradients, &Tensor::defined)) return gradient;  // others have all of them
  const bool always = p.flip == Flip::always && may_last(p) && !(together && audits_itself(p, step));
  if (p.flip == Flip::gradient || always) {
    if (always) flip_bits(gradient.gradients, 1u << 22 | static_cast<uint32_t>(p.peer), 0);
    else flip_bits(gradient.gradients, next_damage(), random_());
    damaged(p, "a rank gradient", step);
  }
  return gradient;
}

// Flips a bit in the state that an update has just made, and thus in what is saved of it. It is certain to be found
// only if that state is digested.
void Simulation::flip_state(Process& p, int64_t step) {
  const bool seen = audited(audit_, step) && (due(step, kCheckpointEvery) || due(step, kDigestEvery));
  if (p.flip != Flip::state || !seen || p.member->position().known_steps() == step || !p.member->position().active() ||
      !may_last(p))
    return;
  if (is_the_last_right(p)) return;
  p.state = mix(p.state ^ p.peer);
  p.corrupt = true;
  damaged(p, "the state", step);
}

void Simulation::spoil(Process& p, int64_t step, int bucket, std::vector<Tensor>& sums) {
  const int buckets = p.member->layout().bucket_count();
  if (p.flip != Flip::sum || p.member->position().members() < 2 || !audited(audit_, step)) return;
  if (bucket != audited_bucket(audit_, step, buckets) || is_the_last_right(p)) return;
  flip_bits(sums, next_damage(), random_());
  damaged(p, "a sum", step);
}

// What members have computed together counts no longer after a fence. If others compute the audited rank gradient then,
// the damage may go into the sums before the state is digested.
bool Simulation::hides_damage(const Process& p) const {
  const int64_t now = p.member->position().number();
  return divided() && p.corrupt_in > 0 && p.corrupt_in != now && !p.member->audit().on_trial();
}

// A lasting fault is not found if no member is left to compare with, nor if others receive the damaged state.
void Simulation::end_what_lasts(Process& p) {
  if (p.alive && (p.corrupt || p.flip == Flip::always)) die(p, "a fault that nobody could find ends");
}

// Checks the coordinators' verdicts.
void Simulation::judged(const Json& found) {
  result_.tried += found.at("verdict") == name_of(Verdict::What::try_all);
  if (!found.contains("workers")) return;
  bool any = false;
  const bool guilty = found.at("verdict") == "guilty";
  for (const Json& id : found["workers"]) {
    const Process* blamed = nullptr;
    for (const auto& [number, record] : records_)
      for (const GenerationMember& m : record.members)
        if (m.id == id) blamed = workers_.at(m.peer).get();
    if (!blamed) violate("an audit names worker {}, whom no record knows", id.dump());
    any = any || blamed->damaged;
    if (guilty && !blamed->damaged) violate("an honest worker is blamed: {}", found.dump());
    result_.caught += guilty;
  }
  if (!any) violate("an audit finds a fault without one: {}", found.dump());
  result_.undecided += found.at("verdict") == "undecided";
  result_.restored += found.at("verdict") == name_of(Verdict::What::restore);
}

// Replays from the newest checkpoint; a faulty machine reaches another state.
void Simulation::replay(Process& p) {
  const int64_t from = p.member->audit().begin_replay(), to = p.member->position().completed;
  if (from > 0 && !sees_directory(p)) return later(p, 0.01, [](Process&) {});
  p.replays = true;
  p.state = mix(p.state);
  later(p, uniform(0.05, 0.3), [this, from, to](Process& q) {
    ++result_.replays;
    q.replays = false;
    const std::vector<TinyState>& states = reference(q).states;
    q.tiny = states[std::min(static_cast<size_t>(to), states.size() - 1)];
    q.state = q.tiny.digest();
    q.corrupt = q.flip == Flip::always && from < to;
    if (!q.corrupt) return;
    damaged(q, "a replay", to);
    q.state = mix(q.state ^ q.peer);
  });
}

}  // namespace elinvar
