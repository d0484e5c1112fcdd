#pragma once
// Two states, element by element: how many differ where, by how much, and what the places have in common.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/state.h"

namespace elinvar {

struct TensorDifference {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elements = 0, differing = 0;
  std::vector<int64_t> first = {};         // the place of the first that differs,
  std::string bits_a = {}, bits_b = {};    // what match there, in hexadecimal digits,
  std::string value_a = {}, value_b = {};  // and as a number
  uint64_t first_ulps = 0, most_ulps = 0;  // units in the last place: representable numbers from one to the other
  int64_t not_numbers = 0;                 // elements of which one is NaN and the other is not: no distance
  std::map<int, int64_t> histogram = {};   // elements by the number of binary digits of their distance
  std::string pattern = {};                // of the places: "one element", "row 3", "output channel 2", ...
};

struct StateDifference {
  std::vector<TensorDifference> tensors;  // that differ, in name order
  size_t compared = 0;
  std::vector<std::string> unlike;  // that only one side has, or that have another type or shape
  std::string pattern;              // over all of them
};

StateDifference differences(const StateDict& a, const StateDict& b);
nlohmann::ordered_json to_json(const StateDifference& difference);
// A line or more: what differs, and how many elements have which distance ("3 x 1, 1 x 2-3, 5 x 4-7").
std::string to_text(const TensorDifference& difference, int indent);

}  // namespace elinvar
