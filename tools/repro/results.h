#pragma once
// Compares two results of an op; values have the names of the op's signature.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/trace.h"
#include "tools/repro/elements.h"

namespace elinvar {

struct ResultsDifference {
  struct Number {
    std::string name, a, b;
  };
  std::vector<Number> numbers;  // numbers that differ
  StateDifference tensors;

  bool none() const { return numbers.empty() && tensors.tensors.empty() && tensors.unlike.empty(); }
};

ResultsDifference differences(const TraceValues& a, const TraceValues& b);
nlohmann::ordered_json to_json(const ResultsDifference& difference);
std::string to_text(const ResultsDifference& difference);  // indented lines, one or two for each difference

}  // namespace elinvar
