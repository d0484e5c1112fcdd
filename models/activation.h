#pragma once
// Activation functions by the names that configurations use.
#include <span>
#include <string>
#include <vector>

#include "autograd/var.h"

namespace elinvar {

using Activation = Var (*)(const Var&);

struct NamedActivation {
  std::string name;
  Activation function;
};

// relu, gelu, gelu_tanh, silu, sigmoid, tanh
std::span<const NamedActivation> activations();
std::vector<std::string> activation_names();
Activation activation(const std::string& name);  // one of the names

}  // namespace elinvar
