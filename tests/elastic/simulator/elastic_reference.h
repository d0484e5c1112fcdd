#pragma once
// A network whose gradients depend on every bit of its state, and the results of an undisturbed process that trains it.
// Simulated workers train this network.
#include <array>
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

// A state: parameters, an optimizer's state of each, and a number that stands for all else.
struct TinyState {
  static constexpr size_t kElements = 5;  // of all gradients
  std::array<uint32_t, kElements> parameters = {};
  std::array<uint64_t, kElements> slots = {};
  uint64_t rest = 1;

  uint64_t digest() const;  // without the slots, which each worker has a part of
  // An update consists of that of the rest and those of all elements.
  void update_element(size_t i, float gradient, double lr_factor);
  void update_rest(const Reduced& reduced, double lr_factor);
  void update(const Reduced& reduced, double lr_factor);
};
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
  std::vector<TinyState> states{{}};         // after each step
  std::vector<uint64_t> state;               // their digests
  std::vector<uint32_t> sums;                // of each step: the bits of all gradients, added without carry
  std::vector<std::string> facts;            // of each step
  std::vector<ScalingState> scaling_states;  // the scaling state of each step
};

}  // namespace elinvar
