// Normalisations over the last dimension: batch_norm, layer_norm, rms_norm, group_norm.
#include <limits>

#include "models/layer.h"
#include "nn/norm.h"

namespace elinvar {

namespace {

// eps must be above 0 in float32: equal numbers have a variance of 0, and would be normalised to 0 / 0.
double eps_of(Settings& s) { return s.real("eps", 1e-5, std::numeric_limits<float>::min(), 1.0); }

Layer build_batch_norm(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  BatchNorm2d layer(scope, flow.shape.back());
  layer.eps = eps_of(s);
  layer.momentum = s.real("momentum", 0.1, 0.0, 1.0);
  const BatchNormOptions fused{.relu = s.boolean("relu", false)};
  return [layer, fused](const Var& x, Context& context) { return layer(x, context, fused); };
}

Layer build_layer_norm(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  const LayerNorm layer(scope, flow.shape.back(), eps_of(s), s.boolean("bias", true));
  return [layer](const Var& x, Context&) { return layer(x); };
}

Layer build_rms_norm(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  const RmsNorm layer(scope, flow.shape.back(), eps_of(s));
  return [layer](const Var& x, Context&) { return layer(x); };
}

Layer build_group_norm(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  const int64_t channels = flow.shape.back(), groups = s.integer("groups", std::nullopt);
  s.require(channels % groups == 0, "groups", "= {} must divide the {} channels", groups, channels);
  const GroupNorm layer(scope, channels, groups, eps_of(s));
  return [layer](const Var& x, Context&) { return layer(x); };
}

}  // namespace

std::vector<LayerKind> norm_layers() {
  return {{"batch_norm", build_batch_norm},
          {"layer_norm", build_layer_norm},
          {"rms_norm", build_rms_norm},
          {"group_norm", build_group_norm}};
}

}  // namespace elinvar
