// A LLaMA-style transformer (Touvron et al., "LLaMA: open and efficient foundation language models"): RMS norm before
// attention and perceptron, rotary positions (optionally scaled as in LLaMA 3.1), SwiGLU and grouped-query attention.
// There are no biases; with qkv_bias queries, keys and values have them, as in Qwen2. Parameters have the names of
// Hugging Face's LlamaForCausalLM and Qwen2ForCausalLM: model.embed_tokens, model.norm, lm_head, and in
// model.layers.<i>: input_layernorm, self_attn.{q,k,v,o}_proj, post_attention_layernorm, mlp.{gate,up,down}_proj.
// Virtual shards cut heads of keys and values with their queries, hidden channels of the perceptron, and rows of the
// vocabulary.
//
// `experts` replaces perceptrons by mixtures of experts (nn/mixture.h), as in Mixtral (A. Q. Jiang et al., "Mixtral of
// experts"): expert e computes w2(silu(w1 x) * w3 x). In model.layers.<i> these are block_sparse_moe.gate.weight
// (experts, channels), and block_sparse_moe.experts.{w1,w3}.weight (experts, channels, hidden) and w2.weight
// (experts, hidden, channels). Virtual shards cut the experts.
#include <cmath>
#include <limits>
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
#include "tensor/ops/rotary.h"

namespace elinvar {

namespace {

struct LlamaOptions {
  int64_t layers = 4, heads = 4, channels = 128;
  int64_t kv_heads = 0;  // heads of keys and values, a divisor of heads; 0 for as many as heads
  int64_t hidden = 0;    // of the perceptron; 0 for 8/3 of the channels, rounded up to a multiple of 64
  RotaryFrequencies rope = {};
  double norm_eps = 1e-5;
  double dropout = 0.0;  // at the end of each residual branch
  bool tied_head = false;
  bool qkv_bias = false;  // queries, keys and values have biases
  BlockMixtures mixtures = {};
  int shards = 1;  // virtual shards, at most `kv_heads`, the experts, and `hidden` of perceptrons
};

constexpr double kLlamaDeviation = 0.02;

LinearInit projection(double deviation, bool bias = false) {
  return {.bias = bias, .weight = init::normal(deviation), .bias_values = init::constant(0.0)};
}

int64_t default_hidden(int64_t channels) { return (8 * channels / 3 + 63) / 64 * 64; }

struct LlamaBlock {
  RmsNorm input_norm, post_norm;
  std::vector<Linear> q, k, v, gate, up;  // one per shard
  RowParallelLinear o, down;
  Mixture mixture;  // with w1, w3 and w2 in place of gate, up and down
  ExpertLinear w1, w2, w3;
  Cut kv_heads;
  int64_t queries_of_head;  // heads of queries for each head of keys and values
  int64_t layer;
  RotaryFrequencies rope;
  Dropout dropout;

  LlamaBlock(const Scope& s, const LlamaOptions& l, int64_t place)
      : kv_heads{.shards = l.shards, .things = l.kv_heads},
        queries_of_head(l.heads / l.kv_heads),
        layer(place),
        rope(l.rope),
        dropout{l.dropout} {
    const int64_t c = l.channels, kv = c / l.heads * l.kv_heads;
    const double last = kLlamaDeviation / std::sqrt(2.0 * static_cast<double>(l.layers));
    const Scope attn = s / "self_attn", mlp = s / "mlp";
    const LinearInit inner = projection(kLlamaDeviation, l.qkv_bias), gates = projection(kLlamaDeviation);
    const Cut hidden{.shards = l.shards, .things = l.hidden};
    input_norm = RmsNorm(s / "input_layernorm", c, l.norm_eps);
    q = column_parallel_linear(attn / "q_proj", c, c, inner, kv_heads);
    k = column_parallel_linear(attn / "k_proj", c, kv, inner, kv_heads);
    v = column_parallel_linear(attn / "v_proj", c, kv, inner, kv_heads);
    o = RowParallelLinear(attn / "o_proj", c, c, projection(last), kv_heads);
    post_norm = RmsNorm(s / "post_attention_layernorm", c, l.norm_eps);
    if (l.mixtures.in_block(place)) {
      const Scope moe = s / "block_sparse_moe", experts = moe / "experts";
      mixture = Mixture(moe, c, l.mixtures.options, init::normal(kLlamaDeviation), l.shards);
      w1 = ExpertLinear(experts / "w1", c, l.hidden, init::normal(kLlamaDeviation), mixture.cut());
      w2 = ExpertLinear(experts / "w2", l.hidden, c, init::normal(last), mixture.cut());
      w3 = ExpertLinear(experts / "w3", c, l.hidden, init::normal(kLlamaDeviation), mixture.cut());
      return;
    }
    gate = column_parallel_linear(mlp / "gate_proj", c, l.hidden, gates, hidden);
    up = column_parallel_linear(mlp / "up_proj", c, l.hidden, gates, hidden);
    down = RowParallelLinear(mlp / "down_proj", l.hidden, c, projection(last), hidden);
  }

  Var attend(const Var& x, size_t s, const Context& context) const {
    const int64_t first = context.cache ? context.cache->length() : 0;
    const int64_t count = kv_heads.things_of(static_cast<int>(s)).count;
    const std::vector<Var> qkv = linears(x, {q[s], k[s], v[s]});
    const Var queries = rotary(split_heads(qkv[0], count * queries_of_head), rope, first),
              keys = rotary(split_heads(qkv[1], count), rope, first), values = split_heads(qkv[2], count);
    const int64_t place = layer * kv_heads.shards + static_cast<int64_t>(s);
    const Var seen =
        context.cache ? context.cache->attend(place, queries, keys, values) : attention(queries, keys, values);
    return reshape(seen, qkv[0].shape());
  }

  Var gated(const Var& x, size_t s) const {
    const std::vector<Var> hidden = linears(x, {gate[s], up[s]});
    return silu(hidden[0]) * hidden[1];
  }

  Var perceptron(const Var& x, Context& context) const {
    if (gate.empty())
      return mixture(x, context, [&](const Var& y, size_t s) { return w2(silu(w1(y, s)) * w3(y, s), s); });
    return down(x, context, [&](const Var& y, size_t s) { return gated(y, s); });
  }

  Residual operator()(Residual x, Context& context) const {
    const auto attention = [&](const Var& y, size_t s) { return attend(y, s, context); };
    x += dropout(o(input_norm(x), context, attention), context);
    x += dropout(perceptron(post_norm(x), context), context);
    return x;
  }
};

// Initial weights are N(0, 0.02^2), at the end of a residual branch divided by sqrt(2 * layers). Initial biases are
// zero.
class Llama : public SegmentedNetwork {
 public:
  Llama(const LlamaOptions& given, const InputInfo& input, uint64_t seed) {
    LlamaOptions o = given;
    if (!o.kv_heads) o.kv_heads = o.heads;
    if (!o.hidden) o.hidden = default_hidden(o.channels);
    check(o.channels % (2 * o.heads) == 0, "[llama] channels = {} must be a multiple of 2 * heads = {}", o.channels,
          2 * o.heads);
    check(o.heads % o.kv_heads == 0, "[llama] heads = {} must be a multiple of kv_heads = {}", o.heads, o.kv_heads);
    const Scope scope(parameters, seed), model = scope / "model";
    embed_ = Embedding(model / "embed_tokens", input.classes, o.channels, init::normal(kLlamaDeviation), o.shards);
    add_segment("embeddings", [this](const Residual& tokens, Context& c) { return embed_(Var(tokens).value(), c); });
    for (int64_t i = 0; i < o.layers; ++i) {
      blocks_.emplace_back(model / "layers" / i, o, i);
      const auto run = [this, i](const Residual& x, Context& c) {
        return run_block(blocks_[static_cast<size_t>(i)], x, c);
      };
      add_segment("layers." + std::to_string(i), run, {}, o.mixtures.in_block(i) ? "expert block" : "block");
    }
    norm_ = RmsNorm(model / "norm", o.channels, o.norm_eps);
    head_ = o.tied_head
                ? embed_
                : Embedding(scope / "lm_head", input.classes, o.channels, init::normal(kLlamaDeviation), o.shards);
    add_head(o.tied_head ? std::vector<std::string>{"model.embed_tokens"} : std::vector<std::string>{});
  }

  ShardedLogits head(Residual x, Context& context) const override {
    if (context.cache) x = context.cache->advance(x);
    return head_.logits(norm_(x), context);
  }
  bool continues() const override { return true; }

 private:
  Embedding embed_, head_;
  std::vector<LlamaBlock> blocks_;
  RmsNorm norm_;
};

// Reads `virtual_shards`.
int shards_of(Settings& s, const LlamaOptions& o, int64_t vocabulary) {
  std::vector<std::pair<std::string, int64_t>> cut = {{"kv_heads", o.kv_heads}};
  if (!o.mixtures.in_every_block()) cut.emplace_back("hidden", o.hidden);
  cut.emplace_back("the vocabulary", vocabulary);
  if (const int64_t experts = o.mixtures.options.experts) cut.emplace_back("experts", experts);
  return virtual_shards(s, cut);
}

}  // namespace

std::vector<ModelKind> llama_kinds() {
  return {{"llama", [](Settings& s, const InputInfo& input, uint64_t seed) {
             require_tokens(s, input);
             LlamaOptions o{.layers = s.integer("layers", 4, 1, kMostBlocks),
                            .heads = s.integer("heads", 4),
                            .channels = s.integer("channels", 128)};
             o.kv_heads = s.integer("kv_heads", o.heads);
             o.hidden = s.integer("hidden", default_hidden(o.channels));
             o.rope.base = s.real("rope_base", 10000.0, 1.0, 1e12);
             // Records of older runs lack these settings, so a network has them only if its configuration does.
             for (const char* scaling : {"rope_low_freq_factor", "rope_high_freq_factor", "rope_original_context"})
               s.require(s.has("rope_factor") || !s.has(scaling), scaling, "needs rope_factor to be set");
             if (s.has("rope_factor")) {
               o.rope.factor = s.real("rope_factor", 1.0, 1.0, 1e6);
               o.rope.low = s.real("rope_low_freq_factor", 1.0, 1e-6, 1e6);
               o.rope.high = s.real("rope_high_freq_factor", 4.0, 1e-6, 1e6);
               o.rope.context = s.integer("rope_original_context", 8192);
             }
             o.norm_eps = s.real("norm_eps", 1e-5, std::numeric_limits<float>::min(), 1.0);
             o.dropout = s.real("dropout", 0.0, 0.0, 0.99);
             o.tied_head = s.boolean("tied_head", false);
             if (s.has("qkv_bias")) o.qkv_bias = s.boolean("qkv_bias", false);
             s.require(o.channels % (2 * o.heads) == 0, "heads", "= {}, doubled, must divide channels = {}", o.heads,
                       o.channels);
             s.require(o.heads % o.kv_heads == 0, "kv_heads", "= {} must divide heads = {}", o.kv_heads, o.heads);
             s.require(o.rope.low < o.rope.high, "rope_low_freq_factor",
                       "= {} must be less than rope_high_freq_factor = {}", o.rope.low, o.rope.high);
             o.mixtures = block_mixtures(s, o.layers);
             o.shards = shards_of(s, o, input.classes);
             return std::make_unique<Llama>(o, input, seed);
           }}};
}

}  // namespace elinvar
