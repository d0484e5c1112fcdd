#include "models/activation.h"

#include "autograd/pointwise.h"
#include "tensor/base/check.h"
#include "tensor/base/spelling.h"

namespace elinvar {

std::span<const NamedActivation> activations() {
  static const NamedActivation kActivations[] = {{"relu", relu}, {"gelu", gelu},       {"gelu_tanh", gelu_tanh},
                                                 {"silu", silu}, {"sigmoid", sigmoid}, {"tanh", tanh}};
  return kActivations;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const NamedActivation& a : activations()) names.push_back(a.name);
  return names;
}

Activation activation(const std::string& name) {
  for (const NamedActivation& a : activations())
    if (a.name == name) return a.function;
  throw UsageError("[activation] unknown '" + name + "'" + spelling_hint(name, activation_names()));
}

}  // namespace elinvar
