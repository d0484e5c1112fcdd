// Layers on the last dimension and along sequences: linear, embedding, position, attention, experts, lstm.
#include <cmath>

#include "autograd/pointwise.h"
#include "models/activation.h"
#include "models/kinds.h"
#include "models/layer.h"
#include "models/mixture_settings.h"
#include "models/weight_init.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/lstm.h"
#include "nn/sharded_linear.h"

namespace elinvar {

namespace {

Layer build_linear(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  const int64_t out = s.integer("out", flow.classes);
  require_things(s, flow, "out", out);
  const std::vector<Linear> layers =
      column_parallel_linear(scope, flow.shape.back(), out,
                             {.bias = s.boolean("bias", true), .weight = weight_init(s, init::fan_in_uniform())},
                             {.shards = flow.shards, .things = out});
  flow.shape[flow.shape.ndim() - 1] = out;
  return [layers](const Var& x, Context& context) { return joined_columns(layers, x, context); };
}

Layer build_embedding(Settings& s, const Scope& scope, Flow& flow) {
  s.require(flow.tokens, "kind", "= 'embedding' reads tokens, but gets numbers of shape {}", to_string(flow.shape));
  const int64_t channels = s.integer("channels", std::nullopt);
  s.require(flow.classes >= flow.shards, "kind", "= 'embedding' has {} rows, less than model.virtual_shards = {}",
            flow.classes, flow.shards);
  const Embedding layer(scope, flow.classes, channels, weight_init(s, init::normal(1.0)), flow.shards);
  flow.shape.push_back(channels);
  flow.tokens = false;
  return [layer](const Var& x, Context& context) { return layer(x.value(), context); };
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
  require_things(s, flow, "kv_heads", kv_heads);
  const int64_t kv = channels / heads * kv_heads;
  const Cut cut{.shards = flow.shards, .things = kv_heads};
  const std::vector<Linear> q = column_parallel_linear(scope / "q", channels, channels, linear_init, cut),
                            k = column_parallel_linear(scope / "k", channels, kv, linear_init, cut),
                            v = column_parallel_linear(scope / "v", channels, kv, linear_init, cut);
  const RowParallelLinear out(scope / "out", channels, channels, linear_init, cut);
  const auto attend = [=](const Var& x, size_t shard) {
    const int64_t count = cut.things_of(static_cast<int>(shard)).count;
    const std::vector<Var> qkv = linears(x, {q[shard], k[shard], v[shard]});
    Var queries = split_heads(qkv[0], heads / kv_heads * count), keys = split_heads(qkv[1], count);
    if (rope) {
      queries = rotary(queries, {base});
      keys = rotary(keys, {base});
    }
    const Var seen = attention(queries, keys, split_heads(qkv[2], count), {.causal = causal});
    return reshape(seen, qkv[0].shape());
  };
  return [=](const Var& x, Context& context) { return out(x, context, attend); };
}

// A mixture of perceptrons for each element of a sequence or an image.
Layer build_experts(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 0, "numbers");
  const int64_t channels = flow.shape.back(), hidden = s.integer("hidden", 4 * channels);
  const MixtureOptions options = mixture_options(s);
  require_things(s, flow, "experts", options.experts);
  const Activation act = activation(s.choice("activation", "gelu", activation_names()));
  const auto bound = [](int64_t in) { return init::uniform(1.0 / std::sqrt(static_cast<double>(in))); };
  const Mixture mixture(scope, channels, options, init::fan_in_uniform(), flow.shards);
  const ExpertLinear up(scope / "experts" / "up", channels, hidden, bound(channels), mixture.cut()),
      down(scope / "experts" / "down", hidden, channels, bound(hidden), mixture.cut());
  const auto expert = [=](const Var& rows, size_t shard) { return down(act(up(rows, shard)), shard); };
  return [=](const Var& x, Context& context) { return mixture(x, context, expert); };
}

Layer build_lstm(Settings& s, const Scope& scope, Flow& flow) {
  require_flow(s, flow, 2, "a sequence (T, channels)");
  const int64_t hidden = s.integer("hidden", flow.shape[1]), layers = s.integer("layers", 1, 1, kMostBlocks);
  const Lstm lstm(scope, layers, flow.shape[1], hidden, s.real("dropout", 0.0, 0.0, 0.99));
  flow.shape[1] = hidden;
  return [lstm](const Var& x, Context& context) { return lstm(x, context); };
}

}  // namespace

std::vector<LayerKind> linear_layers() {
  return {{"linear", build_linear},       {"embedding", build_embedding}, {"position", build_position},
          {"attention", build_attention}, {"experts", build_experts},     {"lstm", build_lstm}};
}

}  // namespace elinvar
