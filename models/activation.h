#pragma once
// Activations by the names in configurations: the functions that tensor/ops/pointwise_functions.inc marks as such.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/pointwise.h"

namespace elinvar {

struct Activation {
  const char* name;
  Var (*function)(const Var& x, double parameter);
  std::optional<pointwise::Parameter> parameter = {};  // empty for a function without one

  Var operator()(const Var& x) const { return function(x, parameter ? parameter->value : 0.0); }
};

std::span<const Activation> activations();  // each with the default of its parameter
std::vector<std::string> activation_names();
Activation activation(const std::string& name);  // throws UsageError for another name

}  // namespace elinvar
