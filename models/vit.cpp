// Vision transformer (Dosovitskiy et al., "An image is worth 16x16 words"): patches of an image as tokens, a class
// token before them, learnt positions, layer norm before attention and before the perceptron, and a head on the class
// token. Parameters are named as in torchvision: class_token, conv_proj, encoder.pos_embedding,
// encoder.layers.encoder_layer_<i>.ln_1, .self_attention.in_proj_weight, .self_attention.out_proj, .ln_2, .mlp.0,
// .mlp.3, encoder.ln, heads.head. Virtual shards cut heads and hidden channels of the perceptron.
#include <memory>
#include <vector>

#include "autograd/pointwise.h"
#include "models/kinds.h"
#include "nn/attention.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/norm.h"
#include "nn/recompute.h"
#include "nn/segments.h"
#include "nn/sharded_linear.h"

namespace elinvar {

namespace {

struct VitOptions {
  int64_t patch = 16, layers = 12, heads = 12, channels = 768, hidden = 3072;
  double dropout = 0.0;  // after the positions and at the end of each residual branch
  int shards = 1;        // virtual shards, at most `heads` and `hidden`
};

constexpr double kVitEps = 1e-6;

struct VitBlock {
  LayerNorm ln_1, ln_2;
  std::vector<LinearOperands> in_proj;  // one per shard: queries, keys and values
  RowParallelLinear out_proj, down;
  std::vector<Linear> up;
  Cut heads;
  Dropout dropout;

  VitBlock(const Scope& s, const VitOptions& o) : heads{.shards = o.shards, .things = o.heads}, dropout{o.dropout} {
    const int64_t C = o.channels;
    const Scope attention = s / "self_attention", mlp = s / "mlp";
    const Cut qkv{.shards = o.shards, .things = o.heads, .groups = 3}, hidden{.shards = o.shards, .things = o.hidden};
    const LinearInit perceptron{.weight = init::xavier_uniform(), .bias_values = init::normal(1e-6)};
    ln_1 = LayerNorm(s / "ln_1", C, kVitEps);
    const std::vector<Var> weights = attention.shards("in_proj_weight", {3 * C, C}, init::xavier_uniform(), qkv),
                           biases = attention.shards("in_proj_bias", {3 * C}, init::constant(0.0), qkv);
    for (size_t i = 0; i < weights.size(); ++i) in_proj.push_back({weights[i], biases[i]});
    out_proj = RowParallelLinear(attention / "out_proj", C, C, {.bias_values = init::constant(0.0)}, heads);
    ln_2 = LayerNorm(s / "ln_2", C, kVitEps);
    up = column_parallel_linear(mlp / 0, C, o.hidden, perceptron, hidden);
    down = RowParallelLinear(mlp / 3, o.hidden, C, perceptron, hidden);
  }

  Residual operator()(Residual x, Context& context) const {
    const auto attention = [&](const Var& y, size_t s) {
      const Var qkv = linear(y, in_proj[s].weight, in_proj[s].bias);
      return self_attention(qkv, heads.things_of(static_cast<int>(s)).count, {.causal = false});
    };
    const auto perceptron = [&](const Var& y, size_t s) { return gelu(up[s](y)); };
    x += dropout(out_proj(ln_1(x), context, attention), context);
    x += dropout(down(ln_2(x), context, perceptron), context);
    return x;
  }
};

// Initial values are torchvision's. The class token and the head are zero, so the first step changes only the head.
class Vit : public SegmentedNetwork {
 public:
  Vit(const VitOptions& o, const InputInfo& input, uint64_t seed) : dropout_{o.dropout} {
    const int64_t patches = (input.sample[0] / o.patch) * (input.sample[1] / o.patch), colors = input.sample[2];
    const Scope scope(parameters, seed), encoder = scope / "encoder";
    const double fan_in = static_cast<double>(colors * o.patch * o.patch);
    const Initializer zeros = init::constant(0.0);
    class_token_ = scope.parameter("class_token", {1, 1, o.channels}, zeros);
    patches_ = Conv2d(scope / "conv_proj", colors, o.channels, {o.patch, o.patch}, {.stride = {o.patch, o.patch}},
                      {.weight = init::normal(std::sqrt(1.0 / fan_in)), .bias_values = zeros});
    positions_ = encoder.parameter("pos_embedding", {1, patches + 1, o.channels}, init::normal(0.02));
    add_segment("embeddings", [this](const Residual& images, Context& c) { return embed(images, c); });
    for (int64_t i = 0; i < o.layers; ++i) {
      const std::string name = fmt::format("encoder_layer_{}", i);
      blocks_.emplace_back(encoder / "layers" / name, o);
      const auto run = [this, i](const Residual& x, Context& c) {
        return run_block(blocks_[static_cast<size_t>(i)], x, c);
      };
      add_segment(name, run, {}, "block");
    }
    norm_ = LayerNorm(encoder / "ln", o.channels, kVitEps);
    head_ = Linear(scope / "heads" / "head", o.channels, input.classes, {.weight = zeros, .bias_values = zeros});
    add_head();
  }

  ShardedLogits head(Residual stream, Context&) const override {
    const Var x = stream;
    return {.parts = {head_(norm_(reshape(slice(x, 1, 0, 1), {x.dim(0), x.dim(2)})))}};
  }

 private:
  Var embed(const Var& images, Context& context) const {
    const Var patches = patches_(images);
    const int64_t N = patches.dim(0), C = patches.dim(3);
    const Var tokens = concat({expand(class_token_, {N, 1, C}), reshape(patches, {N, -1, C})}, 1);
    return dropout_(tokens + positions_, context);
  }

  Var class_token_, positions_;
  Conv2d patches_;
  Dropout dropout_;
  std::vector<VitBlock> blocks_;
  LayerNorm norm_;
  Linear head_;
};

// The settings, whose defaults are the kind's.
std::unique_ptr<Network> configured_vit(VitOptions o, Settings& s, const InputInfo& input, uint64_t seed) {
  require_images(s, input);
  o.patch = s.integer("patch", o.patch, 1, 1024);
  o.layers = s.integer("layers", o.layers, 1, kMostBlocks);
  o.heads = s.integer("heads", o.heads);
  o.channels = s.integer("channels", o.channels);
  o.hidden = s.integer("hidden", 4 * o.channels);
  o.dropout = s.real("dropout", 0.0, 0.0, 0.99);
  s.require(input.sample[0] % o.patch == 0 && input.sample[1] % o.patch == 0, "patch",
            "= {} must divide the sides of images of {} x {} pixels", o.patch, input.sample[0], input.sample[1]);
  s.require(o.channels % o.heads == 0, "heads", "= {} must divide channels = {}", o.heads, o.channels);
  o.shards = virtual_shards(s, {{"heads", o.heads}, {"hidden", o.hidden}});
  return std::make_unique<Vit>(o, input, seed);
}

}  // namespace

std::vector<ModelKind> vit_kinds() {
  std::vector<ModelKind> kinds;
  const auto add = [&](const std::string& name, const VitOptions& o, bool smaller_patches = false) {
    kinds.push_back({name, [=](Settings& s, const InputInfo& input, uint64_t seed) {
                       VitOptions own = o;
                       if (smaller_patches && input.sample.ndim() == 3 && is_small(input)) own.patch = 4;
                       return configured_vit(own, s, input, seed);
                     }});
  };
  add("vit_tiny", {.heads = 3, .channels = 192}, true);
  add("vit_b_16", {});
  add("vit_b_32", {.patch = 32});
  add("vit_l_16", {.layers = 24, .heads = 16, .channels = 1024});
  add("vit_l_32", {.patch = 32, .layers = 24, .heads = 16, .channels = 1024});
  return kinds;
}

}  // namespace elinvar
