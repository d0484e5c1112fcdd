// Layers without parameters that keep or flatten the shape: activations, dropout, flatten.
#include "autograd/shape.h"
#include "models/activation.h"
#include "models/layer.h"
#include "nn/dropout.h"

namespace elinvar {

std::vector<LayerKind> pointwise_layers() {
  std::vector<LayerKind> kinds;
  for (const NamedActivation& a : activations()) {
    kinds.push_back({a.name, [f = a.function](Settings& s, const Scope&, Flow& flow) -> Layer {
                       require_flow(s, flow, 0, "numbers");
                       return [f](const Var& x, Context&) { return f(x); };
                     }});
  }
  kinds.push_back({"dropout", [](Settings& s, const Scope&, Flow& flow) -> Layer {
                     require_flow(s, flow, 0, "numbers");
                     return Dropout{s.real("p", 0.5, 0.0, 0.99)};
                   }});
  kinds.push_back({"flatten", [](Settings& s, const Scope&, Flow& flow) -> Layer {
                     require_flow(s, flow, 0, "numbers");
                     flow.shape = {flow.shape.numel()};
                     return [](const Var& x, Context&) { return reshape(x, {x.dim(0), -1}); };
                   }});
  return kinds;
}

}  // namespace elinvar
