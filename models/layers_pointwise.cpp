// Layers without parameters that keep or flatten the shape: activations, dropout, flatten.
#include "autograd/shape.h"
#include "models/activation.h"
#include "models/layer.h"
#include "nn/dropout.h"

namespace elinvar {

namespace {

constexpr double kMostParameter = 1e6;  // magnitude of an activation's parameter

}  // namespace

std::vector<LayerKind> pointwise_layers() {
  std::vector<LayerKind> kinds;
  for (const Activation& a : activations()) {
    kinds.push_back({a.name, [a](Settings& s, const Scope&, Flow& flow) -> Layer {
                       require_flow(s, flow, 0, "numbers");
                       Activation f = a;
                       if (f.parameter)
                         f.parameter->value =
                             s.real(f.parameter->name, f.parameter->value, -kMostParameter, kMostParameter);
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
