#pragma once
// The load of the experts of a mixture in validation: the number of choices of each expert, and the number of choices
// that its capacity would drop in training. Integers have the same sum in any order.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace elinvar {

struct ExpertLoad {
  std::vector<int64_t> choices = {};  // of each expert
  int64_t dropped = 0;                // in training
};

// Adds the loads of another batch, of the same mixtures in the same order.
void add_loads(std::vector<ExpertLoad>& sum, const std::vector<ExpertLoad>& more);

// Returns the metrics of all mixtures of a network; none if there are no mixtures.
//   expert_load_least, expert_load_most   choices of an expert, divided by the mean of its mixture: 1 is balanced
//   expert_choices_dropped                the fraction of all choices
std::map<std::string, double> metrics_of(const std::vector<ExpertLoad>& loads);

}  // namespace elinvar
