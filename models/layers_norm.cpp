// Normalisations over the last dimension of whatever flows: batch_norm, layer_norm, rms_norm, group_norm.
#include "models/layer.h"
#include "nn/norm.h"

namespace elinvar {

namespace {

Layer build_batch_norm(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  BatchNorm2d layer(scope, flow.shape.back());
  layer.eps = s.real("eps", 1e-5, 0.0, 1.0);
  layer.momentum = s.real("momentum", 0.1, 0.0, 1.0);
  const BatchNormOptions fused{.relu = s.boolean("relu", false)};
  return [layer, fused](const Var& x, Context& context) { return layer(x, context, fused); };
}

Layer build_layer_norm(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  const LayerNorm layer(scope, flow.shape.back(), s.real("eps", 1e-5, 0.0, 1.0), s.boolean("bias", true));
  return [layer](const Var& x, Context&) { return layer(x); };
}

Layer build_rms_norm(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  const RmsNorm layer(scope, flow.shape.back(), s.real("eps", 1e-5, 0.0, 1.0));
  return [layer](const Var& x, Context&) { return layer(x); };
}

Layer build_group_norm(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  const int64_t channels = flow.shape.back(), groups = s.integer("groups", std::nullopt);
  s.require(channels % groups == 0, "groups", "= {} must divide the {} channels", groups, channels);
  const GroupNorm layer(scope, channels, groups, s.real("eps", 1e-5, 0.0, 1.0));
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
