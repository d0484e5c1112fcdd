// Layers that contain layers: residual, parallel; and those that a "repeat" makes.
#include "autograd/pointwise.h"
#include "autograd/shape.h"
#include "models/activation.h"
#include "models/layer.h"
#include "nn/recompute.h"

namespace elinvar {

namespace {

// y = activation(layer(x) + shortcut(x)); without a list `shortcut`, shortcut(x) is x.
Layer build_residual(Settings& s, const Scope& scope, Flow& flow) {
  Flow side = flow;
  const Layer body = sequence(s, "layer", scope / "layer", flow);
  const Layer shortcut = sequence(s, "shortcut", scope / "shortcut", side);
  s.require(!flow.tokens && flow.shape == side.shape, "kind",
            "= 'residual' adds what must agree in shape; its layers give {}, its shortcut {}", to_string(flow.shape),
            to_string(side.shape));
  std::vector<std::string> names = activation_names();
  names.insert(names.begin(), "none");
  const std::string name = s.choice("activation", "none", names);
  if (name == "relu")
    return [=](const Var& x, Context& context) {
      const Var y = body(x, context);
      return add_relu(y, shortcut(x, context));
    };
  std::optional<Activation> f;
  if (name != "none") f = activation(name);
  return [=](const Var& x, Context& context) {
    const Var left = body(x, context), y = left + shortcut(x, context);
    return f ? (*f)(y) : y;
  };
}

// Branches on one input, joined by concatenation of the last dimension, by a sum, or by a product (gates).
Layer build_parallel(Settings& s, const Scope& scope, Flow& flow) {
  const std::string join = s.choice("join", "concat", {"concat", "add", "mul"});
  std::vector<Layer> branches;
  std::vector<Flow> ends;
  std::vector<Settings> list = s.list("branch");
  s.require(!list.empty(), "branch", "is missing: 'parallel' needs a list of tables with a list 'layer' each");
  for (Settings& branch : list) {
    Flow& end = ends.emplace_back(flow);
    branches.push_back(sequence(branch, "layer", scope / static_cast<int64_t>(branches.size()), end));
    branch.finish();
    Shape shape = end.shape, first = ends.front().shape;
    if (join == "concat") shape[shape.ndim() - 1] = first[first.ndim() - 1] = 0;
    branch.require(!end.tokens && shape == first, "layer", "gives {}, the first branch {}, which '{}' cannot join",
                   to_string(end.shape), to_string(ends.front().shape), join);
  }
  flow = ends.front();
  for (size_t i = 1; join == "concat" && i < ends.size(); ++i)
    flow.shape[flow.shape.ndim() - 1] += ends[i].shape.back();
  return [=](const Var& x, Context& context) {
    std::vector<Var> parts;
    for (const Layer& branch : branches) parts.push_back(branch(x, context));
    if (join == "concat") return concat(parts, -1);
    Var y = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) y = join == "add" ? y + parts[i] : y * parts[i];
    return y;
  };
}

}  // namespace

void repeat_layers(Settings& s, const Scope& scope, Flow& flow, const Built& built) {
  const int64_t times = s.integer("times", std::nullopt);
  for (int64_t i = 0; i < times; ++i) {
    const Layer layers = sequence(s, "layer", scope / i, flow);
    built(
        std::to_string(i), [layers](const Var& x, Context& context) { return run_block(layers, x, context); }, "");
  }
}

std::vector<LayerKind> branch_layers() { return {{"residual", build_residual}, {"parallel", build_parallel}}; }

}  // namespace elinvar
