#pragma once
// Compares two states element by element: how many elements differ, where, by how much, and in which pattern.
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
  std::vector<int64_t> first = {};         // place of the first differing element
  std::string bits_a = {}, bits_b = {};    // its bits on each side, in hexadecimal
  std::string value_a = {}, value_b = {};  // its value on each side
  uint64_t first_ulps = 0, most_ulps = 0;  // units in the last place: representable numbers from one to the other
  int64_t not_numbers = 0;                 // elements that are NaN on one side only, which have no distance
  std::map<int, int64_t> histogram = {};   // elements by the number of binary digits of their distance
  std::string pattern = {};                // of the differing places: "one element", "row 3", "output channel 2", ...
};

struct StateDifference {
  std::vector<TensorDifference> tensors;  // tensors that differ, in name order
  size_t compared = 0;
  std::vector<std::string> unlike;  // tensors that only one side has, or whose types or shapes differ
  std::string pattern;              // over all tensors
};

StateDifference differences(const StateDict& a, const StateDict& b);
nlohmann::ordered_json to_json(const StateDifference& difference);
// Returns one or more lines: what differs, and how many elements have which distance ("3 x 1, 1 x 2-3, 5 x 4-7").
std::string to_text(const TensorDifference& difference, int indent);

}  // namespace elinvar
