// BERT (J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", NAACL
// 2019): an encoder whose layer norms follow each residual sum. With head "tokens" it predicts a token at every place,
// for masked tokens (data/masked_tokens.h); with head "pooled" it predicts a class of the whole text from the first
// token. Parameters are named as in Hugging Face's BertForMaskedLM and BertForSequenceClassification. Virtual shards
// cut heads, hidden channels of the perceptron, and rows of the vocabulary.
#include <memory>
#include <string>
#include <vector>

#include "autograd/pointwise.h"
#include "models/bert_block.h"
#include "models/kinds.h"
#include "nn/embedding.h"
#include "nn/recompute.h"
#include "nn/segments.h"

namespace elinvar {
namespace {

struct BertOptions {
  int64_t layers = 12;
  BertSizes sizes = {};
  int64_t context = 0;  // the longest sequence
  bool pooled = false;  // the head
};

// Weights start from N(0, 0.02^2), biases from zero.
class Bert final : public SegmentedNetwork {
 public:
  Bert(const BertOptions& o, const InputInfo& input, uint64_t seed) : dropout_{o.sizes.dropout}, pooled_(o.pooled) {
    const Scope scope(parameters, seed), bert = scope / "bert";
    const int64_t symbols = input.symbols.empty() ? input.classes : input.symbols[0];
    const int64_t channels = o.sizes.channels;
    const int shards = o.sizes.shards;
    embeddings_ = BertEmbeddings(bert / "embeddings", symbols, o.context, channels, o.sizes.dropout, shards);
    add_segment("embeddings",
                [this](const Residual& tokens, Context& c) { return embeddings_(Var(tokens).value(), c); });
    for (int64_t i = 0; i < o.layers; ++i) {
      blocks_.emplace_back(bert / "encoder" / "layer" / i, o.sizes);
      const auto run = [this, i](const Residual& x, Context& c) {
        return run_block(blocks_[static_cast<size_t>(i)], x, c);
      };
      add_segment("layer." + std::to_string(i), run, {}, "block");
    }
    if (pooled_) {
      dense_ = Linear(bert / "pooler" / "dense", channels, channels, bert_init());
      classifier_ = Linear(scope / "classifier", channels, input.classes, bert_init());
      add_head();
      return;
    }
    const Scope predictions = scope / "cls" / "predictions";
    biases_ = predictions.shards("bias", {symbols}, init::constant(0.0), {.shards = shards, .things = symbols});
    dense_ = Linear(predictions / "transform" / "dense", channels, channels, bert_init());
    head_norm_ = LayerNorm(predictions / "transform" / "LayerNorm", channels, kBertEps);
    add_head({"bert.embeddings.word_embeddings"});
  }

  ShardedLogits head(Residual stream, Context& context) const override {
    const Var x = stream;
    if (pooled_) {
      const Var first = reshape(slice(x, 1, 0, 1), {x.dim(0), x.dim(2)});
      return {.parts = {classifier_(dropout_(tanh(dense_(first)), context))}};
    }
    ShardedLogits logits = embeddings_.words.logits(head_norm_(gelu(dense_(x))), context);
    const auto begin = static_cast<size_t>(logits.shards.own().begin);
    for (size_t i = 0; i < logits.parts.size(); ++i) logits.parts[i] = logits.parts[i] + biases_[begin + i];
    return logits;
  }

 private:
  BertEmbeddings embeddings_;
  LayerNorm head_norm_;
  Dropout dropout_;
  bool pooled_;
  std::vector<BertBlock> blocks_;
  Linear dense_, classifier_;
  std::vector<Var> biases_;  // one per shard
};

}  // namespace

std::vector<ModelKind> bert_kinds() {
  std::vector<ModelKind> kinds;
  const auto add = [&](const std::string& name, int64_t layers, int64_t heads, int64_t channels, int64_t context) {
    kinds.push_back({name, [=](Settings& s, const InputInfo& input, uint64_t seed) {
                       require_tokens(s, input);
                       const int64_t length = input.sample[0];
                       BertOptions options{.layers = s.integer("layers", layers, 1, kMostBlocks)};
                       BertSizes& sizes = options.sizes;
                       sizes.heads = s.integer("heads", heads);
                       sizes.channels = s.integer("channels", channels);
                       sizes.hidden = s.integer("hidden", 4 * sizes.channels);
                       options.context = s.integer("context", context ? context : length);
                       sizes.dropout = s.real("dropout", 0.1, 0.0, 0.99);
                       options.pooled = s.choice("head", "tokens", {"tokens", "pooled"}) == "pooled";
                       s.require(sizes.channels % sizes.heads == 0, "heads", "= {} must divide channels = {}",
                                 sizes.heads, sizes.channels);
                       s.require(options.context >= length, "context", "= {} is less than the data's {} tokens",
                                 options.context, length);
                       s.require(input.symbols.size() <= 1, "kind", "= '{}' reads one vocabulary, not {} columns",
                                 s.kind(), input.symbols.size());
                       sizes.shards = virtual_shards(s, {{"heads", sizes.heads}, {"hidden", sizes.hidden}});
                       return std::make_unique<Bert>(options, input, seed);
                     }});
  };
  add("bert", 4, 4, 128, 0);
  add("bert-base", 12, 12, 768, 512);
  add("bert-large", 24, 16, 1024, 512);
  return kinds;
}

}  // namespace elinvar
