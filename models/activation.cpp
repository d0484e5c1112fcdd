#include "models/activation.h"

#include "tensor/base/check.h"
#include "tensor/base/spelling.h"

namespace elinvar {

namespace {

template <class Function>
void add(std::vector<Activation>& all, const char* name, Var (*function)(const Var&, double)) {
  if constexpr (!Function::activation) return;
  all.push_back({name, function});
  if constexpr (pointwise::HasParameter<Function>) all.back().parameter = Function::parameter;
}

}  // namespace

std::span<const Activation> activations() {
  static const std::vector<Activation> kAll = [] {
    std::vector<Activation> all;
#define ELINVAR_OF_ELEMENTS(name, Function) \
  add<pointwise::Function>(all, #name, [](const Var& x, double) { return name(x); });
#define ELINVAR_WITH_PARAMETER(name, Function) \
  add<pointwise::Function>(all, #name, [](const Var& x, double parameter) { return name(x, parameter); });
    ELINVAR_UNARY_FUNCTIONS(ELINVAR_OF_ELEMENTS, ELINVAR_WITH_PARAMETER)
#undef ELINVAR_OF_ELEMENTS
#undef ELINVAR_WITH_PARAMETER
    return all;
  }();
  return kAll;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const Activation& a : activations()) names.push_back(a.name);
  return names;
}

Activation activation(const std::string& name) {
  for (const Activation& a : activations())
    if (a.name == name) return a;
  throw UsageError("[activation] unknown '" + name + "'" + spelling_hint(name, activation_names()));
}

}  // namespace elinvar
