// GPT-2 (Radford et al., "Language models are unsupervised multitask learners"): learnt positions, layer norm before
// attention and before the perceptron, tanh-form GELU, and a head that shares the embedding's weights.
// Parameters are named as in Hugging Face's GPT2Model: wte, wpe, h.<i>.ln_1, h.<i>.attn.c_attn, h.<i>.attn.c_proj,
// h.<i>.ln_2, h.<i>.mlp.c_fc, h.<i>.mlp.c_proj, ln_f; weights are (out, in), where theirs are (in, out). Virtual shards
// cut heads, hidden channels of the perceptron, and rows of the vocabulary.
//
// `experts` replaces perceptrons by mixtures of experts (nn/mixture.h): h.<i>.mlp.gate.weight (experts, channels), and
// h.<i>.mlp.experts.c_fc.weight and c_proj.weight, (experts, in, out). Virtual shards cut the experts, which have no
// biases, as in Switch and Mixtral.
#include <cmath>
#include <memory>

#include "autograd/pointwise.h"
#include "models/kinds.h"
#include "models/mixture_settings.h"
#include "nn/attention.h"
#include "nn/attention_cache.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/mixture.h"
#include "nn/norm.h"
#include "nn/recompute.h"
#include "nn/segments.h"
#include "nn/sharded_linear.h"

namespace elinvar {

namespace {

struct GptOptions {
  int64_t layers = 12, heads = 12, channels = 768;
  int64_t context = 0;    // the longest sequence; 0 takes that of the data
  double dropout = 0.0;   // after the embeddings and at the end of each residual branch
  bool tied_head = true;  // otherwise a parameter lm_head.weight
  bool bias = true;       // of linear layers and layer norms
  BlockMixtures mixtures = {};
  int shards = 1;  // virtual shards, at most `heads` and the experts
};

constexpr double kDeviation = 0.02;

LinearInit projection(const GptOptions& o, double deviation) {
  return {.bias = o.bias, .weight = init::normal(deviation), .bias_values = init::constant(0.0)};
}

struct GptBlock {
  LayerNorm ln_1, ln_2;
  std::vector<Linear> c_attn, c_fc;  // one per shard
  RowParallelLinear attn_proj, mlp_proj;
  Mixture mixture;  // with expert_fc and expert_proj in place of c_fc and mlp_proj
  ExpertLinear expert_fc, expert_proj;
  Cut heads;
  int64_t layer;
  Dropout dropout;

  GptBlock(const Scope& s, const GptOptions& o, int64_t place)
      : heads{.shards = o.shards, .things = o.heads}, layer(place), dropout{o.dropout} {
    const double last = kDeviation / std::sqrt(2.0 * static_cast<double>(o.layers));
    const Cut qkv{.shards = o.shards, .things = o.heads, .groups = 3};
    const Cut hidden{.shards = o.shards, .things = 4 * o.channels};
    ln_1 = LayerNorm(s / "ln_1", o.channels, 1e-5, o.bias);
    c_attn = column_parallel_linear(s / "attn" / "c_attn", o.channels, 3 * o.channels, projection(o, kDeviation), qkv);
    attn_proj = RowParallelLinear(s / "attn" / "c_proj", o.channels, o.channels, projection(o, last), heads);
    ln_2 = LayerNorm(s / "ln_2", o.channels, 1e-5, o.bias);
    if (o.mixtures.in_block(place)) {
      const Scope experts = s / "mlp" / "experts";
      mixture = Mixture(s / "mlp", o.channels, o.mixtures.options, init::normal(kDeviation), o.shards);
      expert_fc = ExpertLinear(experts / "c_fc", o.channels, 4 * o.channels, init::normal(kDeviation), mixture.cut());
      expert_proj = ExpertLinear(experts / "c_proj", 4 * o.channels, o.channels, init::normal(last), mixture.cut());
      return;
    }
    c_fc = column_parallel_linear(s / "mlp" / "c_fc", o.channels, 4 * o.channels, projection(o, kDeviation), hidden);
    mlp_proj = RowParallelLinear(s / "mlp" / "c_proj", 4 * o.channels, o.channels, projection(o, last), hidden);
  }

  Var attend(const Var& x, size_t s, const Context& context) const {
    const int64_t count = heads.things_of(static_cast<int>(s)).count;
    const Var qkv = c_attn[s](x);
    if (!context.cache) return self_attention(qkv, count);
    return context.cache->attend(layer * heads.shards + static_cast<int64_t>(s), qkv, count);
  }

  Var perceptron(const Var& x, Context& context) const {
    if (c_fc.empty())
      return mixture(x, context, [&](const Var& y, size_t s) { return expert_proj(gelu_tanh(expert_fc(y, s)), s); });
    return mlp_proj(x, context, [&](const Var& y, size_t s) { return gelu_tanh(c_fc[s](y)); });
  }

  Residual operator()(Residual x, Context& context) const {
    const auto attention = [&](const Var& y, size_t s) { return attend(y, s, context); };
    x += dropout(attn_proj(ln_1(x), context, attention), context);
    x += dropout(perceptron(ln_2(x), context), context);
    return x;
  }
};

// Weights start from N(0, 0.02^2), those at the end of a residual branch from that divided by sqrt(2 * layers); biases
// are zero.
class Gpt : public SegmentedNetwork {
 public:
  Gpt(const GptOptions& o, const InputInfo& input, uint64_t seed) : dropout_{o.dropout} {
    check(o.channels % o.heads == 0, "[gpt] channels = {} must be a multiple of heads = {}", o.channels, o.heads);
    const Scope scope(parameters, seed);
    const int64_t context = o.context ? o.context : input.sample[0];
    wte_ = Embedding(scope / "wte", input.classes, o.channels, init::normal(kDeviation), o.shards);
    wpe_ = (scope / "wpe").parameter("weight", {context, o.channels}, init::normal(kDeviation));
    add_segment("embeddings", [this](const Residual& tokens, Context& c) { return embed(Var(tokens).value(), c); });
    for (int64_t i = 0; i < o.layers; ++i) {
      blocks_.emplace_back(scope / "h" / i, o, i);
      const auto run = [this, i](const Residual& x, Context& c) {
        return run_block(blocks_[static_cast<size_t>(i)], x, c);
      };
      add_segment("h." + std::to_string(i), run, {}, o.mixtures.in_block(i) ? "expert block" : "block");
    }
    ln_f_ = LayerNorm(scope / "ln_f", o.channels, 1e-5, o.bias);
    head_ = o.tied_head ? wte_
                        : Embedding(scope / "lm_head", input.classes, o.channels, init::normal(kDeviation), o.shards);
    add_head(o.tied_head ? std::vector<std::string>{"wte"} : std::vector<std::string>{});
  }

  Var embed(const Tensor& input, Context& context) const {
    const int64_t T = input.dim(1), first = context.cache ? context.cache->length() : 0;
    check(first + T <= wpe_.dim(0), "[gpt] a sequence of {} tokens exceeds the context of {}", first + T, wpe_.dim(0));
    return dropout_(wte_(input, context) + slice(wpe_, 0, first, first + T), context);
  }
  ShardedLogits head(Residual x, Context& context) const override {
    if (context.cache) x = context.cache->advance(x);
    return head_.logits(ln_f_(x), context);
  }
  bool continues() const override { return true; }

 private:
  Embedding wte_, head_;
  Var wpe_;
  Dropout dropout_;
  std::vector<GptBlock> blocks_;
  LayerNorm ln_f_;
};

// Reads the setting, which cuts heads, the vocabulary and experts.
int shards_of(Settings& s, const GptOptions& o, int64_t vocabulary) {
  std::vector<std::pair<std::string, int64_t>> cut = {{"heads", o.heads}, {"the vocabulary", vocabulary}};
  if (const int64_t experts = o.mixtures.options.experts) cut.emplace_back("experts", experts);
  return virtual_shards(s, cut);
}

}  // namespace

std::vector<ModelKind> gpt_kinds() {
  std::vector<ModelKind> kinds;
  // Sizes are settings too, so that a configuration can start from a known network and change it.
  const auto add = [&](const std::string& name, int64_t layers, int64_t heads, int64_t channels, int64_t context) {
    kinds.push_back({name, [=](Settings& s, const InputInfo& input, uint64_t seed) {
                       require_tokens(s, input);
                       const int64_t length = input.sample[0];
                       GptOptions options{.layers = s.integer("layers", layers, 1, kMostBlocks),
                                          .heads = s.integer("heads", heads),
                                          .channels = s.integer("channels", channels),
                                          .context = s.integer("context", context ? context : length),
                                          .dropout = s.real("dropout", 0.0, 0.0, 0.99),
                                          .tied_head = s.boolean("tied_head", true),
                                          .bias = s.boolean("bias", true)};
                       s.require(options.channels % options.heads == 0, "heads", "= {} must divide channels = {}",
                                 options.heads, options.channels);
                       s.require(options.context >= length, "context", "= {} is less than the data's {} tokens",
                                 options.context, length);
                       options.mixtures = block_mixtures(s, options.layers);
                       options.shards = shards_of(s, options, input.classes);
                       return std::make_unique<Gpt>(options, input, seed);
                     }});
  };
  add("gpt", 4, 4, 128, 0);
  add("gpt2", 12, 12, 768, 1024);
  add("gpt2-medium", 24, 16, 1024, 1024);
  add("gpt2-large", 36, 20, 1280, 1024);
  add("gpt2-xl", 48, 25, 1600, 1024);
  return kinds;
}

}  // namespace elinvar
