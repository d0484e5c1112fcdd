// Layers on the last dimension and along sequences: linear, embedding, position, attention.
#include "autograd/pointwise.h"
#include "models/layer.h"
#include "models/weight_init.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/linear.h"

namespace elinvar {

namespace {

Layer build_linear(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  const int64_t out = s.integer("out", flow.classes);
  const Linear layer(scope, flow.shape.back(), out,
                     {.bias = s.boolean("bias", true), .weight = weight_init(s, init::fan_in_uniform())});
  flow.shape[flow.shape.ndim() - 1] = out;
  return [layer](const Var& x, Context&) { return layer(x); };
}

Layer build_embedding(Settings& s, const Scope& scope, Flow& flow) {
  s.require(flow.tokens, "kind", "= 'embedding' reads tokens, but gets numbers of shape {}", to_string(flow.shape));
  const int64_t channels = s.integer("channels", std::nullopt);
  const Embedding layer(scope, flow.classes, channels, weight_init(s, init::normal(1.0)));
  flow.shape.push_back(channels);
  flow.tokens = false;
  return [layer](const Var& x, Context&) { return layer(x.value()); };
}

// Learnt positions, added.
Layer build_position(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 2, "a sequence (T, channels)");
  const Var table = scope.parameter("weight", flow.shape, weight_init(s, init::normal(0.02)));
  return [table](const Var& x, Context&) { return x + slice(table, 0, 0, x.dim(1)); };
}

Layer build_attention(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 2, "a sequence (T, channels)");
  const int64_t channels = flow.shape[1], heads = s.integer("heads", std::nullopt);
  const int64_t kv_heads = s.integer("kv_heads", heads);
  const bool causal = s.boolean("causal", true), rope = s.boolean("rotary", false), bias = s.boolean("bias", true);
  const double base = rope ? s.real("rope_base", 10000.0, 1.0, 1e12) : 0.0;
  s.require(channels % heads == 0, "heads", "= {} must divide the {} channels", heads, channels);
  s.require(heads % kv_heads == 0, "kv_heads", "= {} must divide heads = {}", kv_heads, heads);
  s.require(!rope || channels / heads % 2 == 0, "rotary", "needs heads of even size, not {}", channels / heads);
  const LinearInit linear_init{.bias = bias, .weight = weight_init(s, init::fan_in_uniform())};
  const int64_t kv = channels / heads * kv_heads;
  const Linear q(scope / "q", channels, channels, linear_init), k(scope / "k", channels, kv, linear_init),
      v(scope / "v", channels, kv, linear_init), out(scope / "out", channels, channels, linear_init);
  return [=](const Var& x, Context&) {
    const std::vector<Var> qkv = linears(x, {q, k, v});
    Var queries = split_heads(qkv[0], heads), keys = split_heads(qkv[1], kv_heads);
    if (rope) {
      queries = rotary(queries, {base});
      keys = rotary(keys, {base});
    }
    return out(reshape(attention(queries, keys, split_heads(qkv[2], kv_heads), {.causal = causal}), x.shape()));
  };
}

}  // namespace

std::vector<LayerKind> linear_layers() {
  return {{"linear", build_linear},
          {"embedding", build_embedding},
          {"position", build_position},
          {"attention", build_attention}};
}

}  // namespace elinvar
