// The simulator: invariants of the batch under adaptive scaling.
#include <algorithm>

#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

Simulation::Simulation(const Schedule& schedule) : s_(schedule), random_(schedule.seed) {
  audit_ = {.every = s_.audit_every, .seed = s_.seed};
  begins_with_ = most_ = {.zero = s_.zero, .copies = s_.copies, .tp = s_.tp, .pp = s_.pp};
  if (s_.rearrangements > 0) most_ = s_.most;
  cut_gradients();
  if (s_.adaptive) {
    const int64_t batch = s_.vranks + 1;
    scaling_ = {.batch = batch, .batch_max = 5 * batch, .ramp_steps = 3, .goal = s_.steps * batch};
    references_.push_back(std::make_unique<Reference>(s_.vranks, scaling_));
  } else {
    references_.push_back(std::make_unique<Reference>(s_.vranks, s_.steps));
  }
}

uint64_t Simulation::state_after(const Process& p, int64_t step) const {
  const std::vector<uint64_t>& states = reference(p).state;
  return states[std::min(static_cast<size_t>(step), states.size() - 1)];
}

void Simulation::begin_history(const Generation& g) {
  const int64_t number = g.scaling->history;
  if (histories_.contains(number)) return;
  const auto known = static_cast<int64_t>(ledger_.size());
  if (saved_step_ > known) violate("a checkpoint of step {} with {} in the ledger", saved_step_, known);
  // The round after the last step changes nothing.
  const int64_t shared = std::min(std::max(known, g.first_step), references_.back()->steps());
  if (!records_.empty()) references_.push_back(std::make_unique<Reference>(*references_.back(), shared));
  histories_[number] = references_.size() - 1;
}

CoordinatorWorld::Recorded Simulation::recorded() const {
  CoordinatorWorld::Recorded recorded{.scaling_state = references_.back()->made(saved_step_),
                                      .steps = static_cast<int64_t>(ledger_.size())};
  int64_t batch = scaling_.batch;
  for (int64_t step = 0; step < recorded.steps; ++step) {
    const ScalingState& scaling_state = references_.back()->scaling_states[static_cast<size_t>(step)];
    if (scaling_state.batch != batch) recorded.changes.push_back({step, batch = scaling_state.batch});
  }
  return recorded;
}

// All workers that complete a step must do so at the scaling state of the first, which must follow from the records.
void Simulation::agree(const Process& p, int64_t step, const ScalingState& scaling_state) {
  Reference& reference = *references_[p.history];
  if (step < reference.steps()) {
    if (reference.scaling_states[static_cast<size_t>(step)] != scaling_state)
      violate("worker {} made step {} at another scaling_state", p.peer, step);
    return;
  }
  const ScalingState before = reference.made(step);
  if (scaling_state.samples != before.samples) violate("step {} begins at sample {}", step, scaling_state.samples);
  if (scaling_state.batch == before.batch) {
    if (scaling_state != before) violate("step {} has another ramp", step);
  } else {
    ++result_.batch_changes;
    const bool planned = std::any_of(records_.begin(), records_.end(), [&](const auto& record) {
      return record.second.first_step < 0 && record.second.scaling->batch == scaling_state.batch;
    });
    if (!planned || scaling_state != rescaled(before, step, scaling_state.batch, scaling_))
      violate("the batch of step {} became {} without a plan", step, scaling_state.batch);
  }
  reference.follow(scaling_state);
}

RankGradient Simulation::any_gradient(uint64_t state, int number) const {
  if (!s_.adaptive) return in_tensors(make_gradient(state, 0, number));
  return in_tensors(make_gradient(state, 0, number % s_.vranks, s_.vranks, {.batch = scaling_.batch}));
}

}  // namespace elinvar
