// ELECTRA (K. Clark et al., "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", ICLR 2020):
// two encoders like BERT's. The generator, a small one, predicts masked tokens. The discriminator sees the text with a
// token that is drawn from these predictions in place of each one to be predicted, and tells for every token whether it
// was replaced. Both share the embeddings. No gradient goes through the drawing.
//
// Inputs: tokens with masks (N, T), and the targets (N, T) int32, kIgnoredTarget for tokens that are not to be
// predicted (data.targets_as_input). Outputs (N, T, V + 2), for the task "replaced_tokens": the generator's logits of V
// symbols, the discriminator's logit that the token was replaced, and 1 or 0 for whether it was.
//
// The drawing, one random operation (NUMERICS.md, rule 17): the token of place p, counted over the batch, is the symbol
// v with the largest x + g, the lowest one if several have it, where x is its logit and
//   g = -log(-log(u))    u = (b + 1/2) 2^-23, b the upper 23 bits of word i % 4 of block i / 4, i = p V + v
// which draws v with the probability that softmax gives it.
//
// Parameters have the names of Hugging Face's ElectraForPreTraining, after "discriminator.", and of its
// ElectraForMaskedLM, after "generator.". The generator has no embeddings of its own.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/precision.h"
#include "models/bert_block.h"
#include "models/kinds.h"
#include "nn/linear.h"
#include "nn/recompute.h"
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

// The layers between the embeddings and the head of either network.
class ElectraEncoder {
 public:
  ElectraEncoder() = default;
  ElectraEncoder(const Scope& scope, int64_t layers, int64_t embedding, const BertSizes& sizes) {
    const Scope electra = scope / "electra";
    if (embedding != sizes.channels)
      project_ = Linear(electra / "embeddings_project", embedding, sizes.channels, bert_init());
    for (int64_t i = 0; i < layers; ++i) blocks_.emplace_back(electra / "encoder" / "layer" / i, sizes);
  }

  Var operator()(Var x, Context& context) const {
    Residual stream = project_.weight.defined() ? project_(x) : std::move(x);
    for (const BertBlock& block : blocks_) stream = run_block(block, stream, context);
    return stream;
  }

 private:
  Linear project_;
  std::vector<BertBlock> blocks_;
};

// Returns the tokens with a drawn one at each place that has a target; all are on the CPU, but the logits.
Tensor with_drawn_tokens(const Tensor& tokens, const Tensor& targets, const Tensor& logits, const Rng& rng) {
  const int64_t symbols = logits.dim(-1);
  Tensor seen = tokens.clone();
  std::vector<int64_t> places;
  for (int64_t p = 0; p < targets.numel(); ++p)
    if (targets.data<int32_t>()[p] >= 0) places.push_back(p);
  if (places.empty()) return seen;
  const auto count = static_cast<int64_t>(places.size());
  const Tensor chosen =
      embedding(logits.reshape({-1, symbols}), Tensor::from(places, {count})).to(Device{}).to(DType::f32);
  Tensor uniform = Tensor::empty({count, symbols});
  cpu_stream().parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t v = 0; v < symbols; ++v) {
        const int64_t i = places[static_cast<size_t>(row)] * symbols + v;
        const uint32_t bits = rng.block(static_cast<uint32_t>(i / 4)).v[i % 4] >> 9;
        uniform.data<float>()[row * symbols + v] = (static_cast<float>(bits) + 0.5f) * 0x1p-23f;
      }
  });
  const Tensor drawn = argmax(add(chosen, neg(log(neg(log(uniform))))), 1);
  for (int64_t row = 0; row < count; ++row)
    seen.data<int32_t>()[places[static_cast<size_t>(row)]] = static_cast<int32_t>(drawn.data<int64_t>()[row]);
  return seen;
}

class Electra final : public Network {
 public:
  Electra(const ElectraOptions& o, uint64_t seed) {
    const Scope scope(parameters, seed), generator = scope / "generator", discriminator = scope / "discriminator";
    embeddings_ = BertEmbeddings(discriminator / "electra" / "embeddings", o.symbols, o.context, o.embedding,
                                 o.discriminator.dropout);
    generator_ = ElectraEncoder(generator, o.generator_layers, o.embedding, o.generator);
    const Scope predictions = generator / "generator_predictions", found = discriminator / "discriminator_predictions";
    generator_dense_ = Linear(predictions / "dense", o.generator.channels, o.embedding, bert_init());
    generator_norm_ = LayerNorm(predictions / "LayerNorm", o.embedding, kBertEps);
    generator_bias_ = (generator / "generator_lm_head").parameter("bias", {o.symbols}, init::constant(0.0));
    discriminator_ = ElectraEncoder(discriminator, o.layers, o.embedding, o.discriminator);
    dense_ = Linear(found / "dense", o.discriminator.channels, o.discriminator.channels, bert_init());
    prediction_ = Linear(found / "dense_prediction", o.discriminator.channels, 1, bert_init());
  }

  Var forward(const Tensor& input, Context& context) const override {
    check(context.inputs.size() == 1 && context.inputs[0].shape() == input.shape(),
          "[electra] tokens (N, T) and targets of the same shape expected, as data.targets_as_input gives them");
    // Blocks of BERT would take a second input for lengths.
    const std::vector<Tensor> inputs = std::exchange(context.inputs, {});
    const Tensor tokens = input.to(Device{}).to_contiguous(), targets = inputs[0].to(Device{}).to_contiguous();
    const Var logits = generate(tokens, context);
    const Tensor seen = with_drawn_tokens(tokens, targets, logits.value(), context.rng.next());
    const Var hidden = gelu(dense_(discriminator_(embeddings_(seen, context), context)));
    context.inputs = inputs;
    return concat({logits, widened(prediction_(hidden)), Var(replaced(seen, targets).to(logits.value().device()))}, 2);
  }

 private:
  Var generate(const Tensor& tokens, Context& context) const {
    const Var x = generator_(embeddings_(tokens, context), context);
    const ShardedLogits logits = embeddings_.words.logits(generator_norm_(gelu(generator_dense_(x))), context);
    return widened(logits.parts[0] + generator_bias_);
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

  BertEmbeddings embeddings_;
  ElectraEncoder generator_, discriminator_;
  Linear generator_dense_, dense_, prediction_;
  LayerNorm generator_norm_;
  Var generator_bias_;
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
