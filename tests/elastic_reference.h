#pragma once
// A network whose state is one number, and whose gradients depend on every bit of it; and what an undisturbed process
// computes with it. Simulated workers train it.
#include <cstdint>
#include <string>
#include <vector>

#include "elastic/step.h"

namespace elinvar {

uint64_t mix(uint64_t x);
Leaf make_leaf(uint64_t state, int64_t step, int vrank);
uint64_t updated(uint64_t state, const Reduced& reduced);
std::string facts_text(const Reduced& reduced);

struct Reference {
  Reference(int vranks, int64_t steps);
  std::vector<uint64_t> state{1};  // after each step
  std::vector<std::string> facts;  // of each step
};

}  // namespace elinvar
