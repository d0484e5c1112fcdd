#pragma once
// Chooses the initial values of a layer's weight by its setting `init`.
#include "nn/initializers.h"
#include "tensor/base/spec.h"

namespace elinvar {

// "default" (the layer's own), "kaiming_normal", "normal" with the setting `deviation` (0.02), or "orthogonal" with the
// setting `gain` (1).
inline Initializer weight_init(Settings& s, const Initializer& otherwise) {
  const std::string choice = s.choice("init", "default", {"default", "kaiming_normal", "normal", "orthogonal"});
  if (choice == "kaiming_normal") return init::kaiming_normal();
  if (choice == "normal") return init::normal(s.real("deviation", 0.02, 0.0, 100.0));
  if (choice == "orthogonal") return init::orthogonal(s.real("gain", 1.0, 0.0, 100.0));
  return otherwise;
}

}  // namespace elinvar
