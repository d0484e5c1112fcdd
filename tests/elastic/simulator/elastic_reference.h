#pragma once
// A network whose state is one number and whose gradients depend on every bit of it, and the results of an undisturbed
// process that trains it. Simulated workers train this network.
#include <cstdint>
#include <string>
#include <vector>

#include "elastic/step/scaling_state.h"
#include "elastic/step/step.h"

namespace elinvar {

uint64_t mix(uint64_t x);
// With a scaling state (adaptive scaling), the rank gradient is that of its share of the batch, from epochs of
// kEpochSamples samples.
inline constexpr int64_t kEpochSamples = 50;
RankGradient make_gradient(uint64_t state, int64_t step, int vrank, int vranks = 1,
                           const ScalingState& scaling_state = {});
uint64_t updated(uint64_t state, const Reduced& reduced, double lr_factor = 1);
std::string facts_text(const Reduced& reduced);

struct Reference {
  Reference(int vranks, int64_t steps);                  // exact scaling: all steps
  Reference(int vranks, const ScalingOptions& scaling);  // adaptive: the steps passed to follow()
  Reference(const Reference& before, int64_t steps);     // copies the first `steps` steps of `before`
  void follow(const ScalingState& scaling_state);        // adds a step, made at this scaling state
  ScalingState made(int64_t step) const;                 // the scaling state in the state after `step` updates
  bool over() const { return made(steps()).samples >= scaling.goal; }  // adaptive scaling
  int64_t steps() const { return static_cast<int64_t>(facts.size()); }

  int vranks;
  ScalingOptions scaling = {};
  std::vector<uint64_t> state{1};            // after each step
  std::vector<std::string> facts;            // of each step
  std::vector<ScalingState> scaling_states;  // the scaling state of each step
};

}  // namespace elinvar
