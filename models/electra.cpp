// ELECTRA (K. Clark et al., "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", ICLR 2020):
// two encoders like BERT's. The generator, a small one, predicts masked tokens. The discriminator sees the text with a
// token that is drawn from these predictions in place of each one to be predicted, and tells for every token whether it
// was replaced. Both share the embeddings. No gradient goes through the drawing.
//
// Inputs: tokens with masks (N, T), and the targets (N, T) int32, kIgnoredTarget for tokens that are not to be
// predicted (data.targets_as_input). Outputs (N, T, V + 2), for the task "replaced_tokens": the generator's logits of V
// symbols, and further ones: the discriminator's logit that the token was replaced, and 1 or 0 for whether it was.
//
// The drawing is one random operation (NUMERICS.md, rule 17). The token of place p, counted over the batch, is the
// symbol v with the largest x + g, and the lowest one if several have it. x is the logit of v, from a product of the
// rows of these places alone, and
//   g = -log(-log(u))    u = (b + 1/2) 2^-23, b the upper 23 bits of word i % 4 of block i / 4, i = p V + v
// This draws v with the probability that softmax gives it.
//
// Parameters have the names of Hugging Face's ElectraForPreTraining, after "discriminator.", and of its
// ElectraForMaskedLM, after "generator.". The generator has no embeddings of its own.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/precision.h"
#include "autograd/shape.h"
#include "models/bert_block.h"
#include "models/kinds.h"
#include "nn/linear.h"
#include "nn/recompute.h"
#include "nn/segments.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/extrema.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {
namespace {

struct ElectraOptions {
  int64_t symbols = 0, context = 0, embedding = 128;
  int64_t layers = 4, generator_layers = 4;
  BertSizes discriminator = {}, generator = {};
};

// The value between segments: for each sample T + R rows of the discriminator's width C, of which the first T are its
// hidden state. The others carry what only the head reads: the generator's last hidden state (N, T, E), and 1 or 0 for
// whether a place's token was replaced (N, T, 1), all elements of a sample one after another, then zeros.
struct ElectraStream {
  Var x, hidden, replaced;

  Var joined() const {
    const int64_t samples = x.dim(0), channels = x.dim(2), carried = x.dim(1) * (hidden.dim(2) + 1);
    const int64_t rows = (carried + channels - 1) / channels;
    const Var flat =
        concat({reshape(hidden, {samples, x.dim(1) * hidden.dim(2)}), reshape(replaced, {samples, x.dim(1)})}, 1);
    const Var padded = pad(flat, {0, 0}, {0, rows * channels - carried});
    return concat({x, reshape(padded, {samples, rows, channels})}, 1);
  }
  static ElectraStream of(const Var& value, int64_t tokens, int64_t embedding) {
    const std::vector<Var> parts = split(value, {tokens, value.dim(1) - tokens}, 1);
    const int64_t samples = value.dim(0), flags = tokens * embedding;
    const Var flat = reshape(parts[1], {samples, parts[1].dim(1) * parts[1].dim(2)});
    return {parts[0], reshape(slice(flat, 1, 0, flags), {samples, tokens, embedding}),
            reshape(slice(flat, 1, flags, flags + tokens), {samples, tokens, 1})};
  }
};

// Returns a copy of the tokens that has a drawn token at each place with a target. `logits_of` returns the logits (M,
// V) of M places.
Tensor with_drawn_tokens(const Tensor& tokens, const Tensor& targets, const Rng& rng,
                         const std::function<Tensor(const Tensor& places)>& logits_of) {
  Tensor seen = tokens.clone();
  std::vector<int64_t> places;
  for (int64_t p = 0; p < targets.numel(); ++p)
    if (targets.data<int32_t>()[p] >= 0) places.push_back(p);
  if (places.empty()) return seen;
  const auto count = static_cast<int64_t>(places.size());
  const Tensor logits = logits_of(Tensor::from(places, {count})).to(Device{}).to(DType::f32);
  const int64_t symbols = logits.dim(1);
  Tensor uniform = Tensor::empty({count, symbols});
  cpu_stream().parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t v = 0; v < symbols; ++v) {
        const int64_t i = places[static_cast<size_t>(row)] * symbols + v;
        const uint32_t bits = rng.block(static_cast<uint32_t>(i / 4)).v[i % 4] >> 9;
        uniform.data<float>()[row * symbols + v] = (static_cast<float>(bits) + 0.5f) * 0x1p-23f;
      }
  });
  const Tensor drawn = argmax(add(logits, neg(log(neg(log(uniform))))), 1);
  for (int64_t row = 0; row < count; ++row)
    seen.data<int32_t>()[places[static_cast<size_t>(row)]] = static_cast<int32_t>(drawn.data<int64_t>()[row]);
  return seen;
}

// The generator is one segment, as its blocks are narrow: it also draws the tokens, for which it computes the logits of
// their places. The head computes those of all places.
class Electra final : public SegmentedNetwork {
 public:
  Electra(const ElectraOptions& o, uint64_t seed) : embedding_(o.embedding) {
    const Scope scope(parameters, seed), generator = scope / "generator", discriminator = scope / "discriminator";
    const int shards = o.discriminator.shards;
    embeddings_ = BertEmbeddings(discriminator / "electra" / "embeddings", o.symbols, o.context, o.embedding,
                                 o.discriminator.dropout, shards);
    generator_project_ = projection(generator, o.embedding, o.generator.channels);
    for (int64_t i = 0; i < o.generator_layers; ++i)
      generator_blocks_.emplace_back(generator / "electra" / "encoder" / "layer" / i, o.generator);
    const Scope predictions = generator / "generator_predictions", found = discriminator / "discriminator_predictions";
    generator_dense_ = Linear(predictions / "dense", o.generator.channels, o.embedding, bert_init());
    generator_norm_ = LayerNorm(predictions / "LayerNorm", o.embedding, kBertEps);
    biases_ = (generator / "generator_lm_head")
                  .shards("bias", {o.symbols}, init::constant(0.0), {.shards = shards, .things = o.symbols});
    project_ = projection(discriminator, o.embedding, o.discriminator.channels);
    add_segment("generator", [this](const Residual& tokens, Context& c) { return generate(Var(tokens).value(), c); });
    for (int64_t i = 0; i < o.layers; ++i) {
      blocks_.emplace_back(discriminator / "electra" / "encoder" / "layer" / i, o.discriminator);
      const auto run = [this, i](const Residual& value, Context& c) -> Residual {
        const Var all = value;
        const int64_t tokens = c.inputs.at(0).dim(1);
        const std::vector<Var> parts = split(all, {tokens, all.dim(1) - tokens}, 1);
        const Var x = reshape(parts[0], parts[0].shape());  // contiguous: one copy for all that read it
        return concat({run_block(blocks_[static_cast<size_t>(i)], x, c), parts[1]}, 1);
      };
      add_segment("layer." + std::to_string(i), run, {}, "block");
    }
    dense_ = Linear(found / "dense", o.discriminator.channels, o.discriminator.channels, bert_init());
    prediction_ = Linear(found / "dense_prediction", o.discriminator.channels, 1, bert_init());
    add_head({"discriminator.electra.embeddings.word_embeddings", "generator.generator_lm_head"});
  }

  ShardedLogits head(Residual value, Context& context) const override {
    const ElectraStream stream = ElectraStream::of(value, context.inputs.at(0).dim(1), embedding_);
    ShardedLogits logits = logits_of(stream.hidden, context);
    logits.further = concat({widened(prediction_(gelu(dense_(stream.x)))), widened(stream.replaced)}, 2);
    return logits;
  }

 private:
  static Linear projection(const Scope& network, int64_t embedding, int64_t channels) {
    if (embedding == channels) return {};
    return {network / "electra" / "embeddings_project", embedding, channels, bert_init()};
  }
  static Var projected(const Linear& project, Var x) { return project.weight.defined() ? project(x) : std::move(x); }

  Residual generate(const Tensor& input, Context& context) const {
    check(context.inputs.size() == 1 && context.inputs[0].shape() == input.shape(),
          "[electra] tokens (N, T) and targets of the same shape expected, as data.targets_as_input gives them");
    const Tensor tokens = input.to(Device{}).to_contiguous(), targets = context.inputs[0].to(Device{}).to_contiguous();
    Residual narrow = projected(generator_project_, embeddings_(tokens, context));
    for (const BertBlock& block : generator_blocks_) narrow = run_block(block, narrow, context);
    const Var hidden = generator_norm_(gelu(generator_dense_(narrow)));
    const Tensor seen = with_drawn_tokens(tokens, targets, context.rng.next(), [&](const Tensor& places) {
      const NoGrad constant;
      const Var rows = embedding(reshape(widened(hidden), {hidden.dim(0) * hidden.dim(1), embedding_}),
                                 places.to(hidden.value().device()));
      return joined(logits_of(rows, context)).value();
    });
    const Var x = projected(project_, embeddings_(seen, context));
    return ElectraStream{x, hidden, Var(replaced(seen, targets).to(x.value().device()).to(x.value().dtype()))}.joined();
  }

  // hidden (.., E) of the generator -> logits (.., V), float32
  ShardedLogits logits_of(const Var& hidden, const Context& context) const {
    ShardedLogits logits = embeddings_.words.logits(hidden, context);
    const auto begin = static_cast<size_t>(logits.shards.own().begin);
    for (size_t i = 0; i < logits.parts.size(); ++i) logits.parts[i] = widened(logits.parts[i] + biases_[begin + i]);
    return logits;
  }

  // 1 where a token was drawn that is not the right one, otherwise 0; (N, T, 1) float32.
  static Tensor replaced(const Tensor& seen, const Tensor& targets) {
    Tensor all = Tensor::zeros({seen.dim(0), seen.dim(1), 1});
    for (int64_t p = 0; p < seen.numel(); ++p) {
      const int32_t target = targets.data<int32_t>()[p];
      if (target >= 0 && seen.data<int32_t>()[p] != target) all.data<float>()[p] = 1;
    }
    return all;
  }

  int64_t embedding_;  // E
  BertEmbeddings embeddings_;
  std::vector<BertBlock> generator_blocks_, blocks_;
  Linear generator_project_, generator_dense_, project_, dense_, prediction_;
  LayerNorm generator_norm_;
  std::vector<Var> biases_;  // of the generator's logits, one per shard
};

}  // namespace

std::vector<ModelKind> electra_kinds() {
  std::vector<ModelKind> kinds;
  const auto add = [&](const std::string& name, int64_t layers, int64_t heads, int64_t channels, int64_t embedding,
                       int64_t context) {
    kinds.push_back({name, [=](Settings& s, const InputInfo& input, uint64_t seed) -> std::unique_ptr<Network> {
                       require_tokens(s, input);
                       const bool targets = input.further.size() == 1 && input.further[0].dtype == DType::i32 &&
                                            input.further[0].sample == input.sample;
                       s.require(targets, "kind",
                                 "= '{}' needs masked tokens and their targets: data.masking above 0, and "
                                 "data.targets_as_input = true",
                                 s.kind());
                       ElectraOptions o{.symbols = input.classes,
                                        .context = s.integer("context", context ? context : input.sample[0]),
                                        .layers = s.integer("layers", layers, 1, kMostBlocks / 2)};
                       BertSizes &large = o.discriminator, &small = o.generator;
                       large.heads = s.integer("heads", heads);
                       large.channels = s.integer("channels", channels);
                       large.hidden = s.integer("hidden", 4 * large.channels);
                       large.reads_lengths = small.reads_lengths = false;
                       large.dropout = small.dropout = s.real("dropout", 0.1, 0.0, 0.99);
                       o.embedding = s.integer("embedding", embedding ? embedding : large.channels);
                       o.generator_layers = s.integer("generator_layers", o.layers, 1, kMostBlocks / 2);
                       small.heads = s.integer("generator_heads", std::max<int64_t>(1, large.heads / 4));
                       small.channels = s.integer("generator_channels", std::max<int64_t>(1, large.channels / 4));
                       small.hidden = s.integer("generator_hidden", 4 * small.channels);
                       s.require(large.channels % large.heads == 0, "heads", "= {} must divide channels = {}",
                                 large.heads, large.channels);
                       s.require(small.channels % small.heads == 0, "generator_heads",
                                 "= {} must divide generator_channels = {}", small.heads, small.channels);
                       large.shards = small.shards = virtual_shards(s, {{"heads", large.heads},
                                                                        {"hidden", large.hidden},
                                                                        {"generator_heads", small.heads},
                                                                        {"generator_hidden", small.hidden}});
                       s.require(o.context >= input.sample[0], "context", "= {} is less than the data's {} tokens",
                                 o.context, input.sample[0]);
                       return std::make_unique<Electra>(o, seed);
                     }});
  };
  add("electra", 4, 4, 128, 0, 0);
  add("electra-small", 12, 4, 256, 128, 512);
  add("electra-base", 12, 12, 768, 0, 512);
  return kinds;
}

}  // namespace elinvar
