// BERT (J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", NAACL
// 2019): an encoder whose layer norms follow each residual sum. With head "tokens" it predicts a token at every place,
// for masked tokens (data/masked_tokens.h); with head "pooled" it predicts a class of the whole text from the first
// token. Parameters are named as in Hugging Face's BertForMaskedLM and BertForSequenceClassification. Virtual shards
// cut heads, hidden channels of the perceptron, and rows of the vocabulary.
#include <memory>
#include <string>
#include <vector>

#include "autograd/linear.h"
#include "autograd/pointwise.h"
#include "models/kinds.h"
#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/masked_attention.h"
#include "nn/norm.h"
#include "nn/recompute.h"
#include "nn/segments.h"
#include "nn/sharded_linear.h"

namespace elinvar {
namespace {

struct BertOptions {
  int64_t layers = 12, heads = 12, channels = 768, hidden = 3072;
  int64_t context = 0;  // the longest sequence
  double dropout = 0.1;
  bool pooled = false;  // the head
  int shards = 1;       // virtual shards, at most `heads` and `hidden`
};

constexpr double kBertDeviation = 0.02, kBertEps = 1e-12;

LinearInit bert_init() {
  return {.bias = true, .weight = init::normal(kBertDeviation), .bias_values = init::constant(0.0)};
}

struct BertBlock {
  std::vector<Linear> query, key, value, intermediate;  // one per shard
  RowParallelLinear attention_output, output;
  LayerNorm attention_norm, output_norm;
  Cut heads;
  Dropout dropout;

  BertBlock(const Scope& s, const BertOptions& o) : heads{.shards = o.shards, .things = o.heads}, dropout{o.dropout} {
    const int64_t c = o.channels;
    const Cut hidden{.shards = o.shards, .things = o.hidden};
    const Scope attention = s / "attention", self = attention / "self", after = attention / "output";
    query = column_parallel_linear(self / "query", c, c, bert_init(), heads);
    key = column_parallel_linear(self / "key", c, c, bert_init(), heads);
    value = column_parallel_linear(self / "value", c, c, bert_init(), heads);
    attention_output = RowParallelLinear(after / "dense", c, c, bert_init(), heads);
    attention_norm = LayerNorm(after / "LayerNorm", c, kBertEps);
    intermediate = column_parallel_linear(s / "intermediate" / "dense", c, o.hidden, bert_init(), hidden);
    output = RowParallelLinear(s / "output" / "dense", o.hidden, c, bert_init(), hidden);
    output_norm = LayerNorm(s / "output" / "LayerNorm", c, kBertEps);
  }

  // `mask` is undefined where all sequences have the same length.
  Var attend(const Var& x, size_t s, const Tensor& mask) const {
    const int64_t count = heads.things_of(static_cast<int>(s)).count;
    const std::vector<Var> qkv = linears(x, {query[s], key[s], value[s]});
    const Var q = split_heads(qkv[0], count), k = split_heads(qkv[1], count), v = split_heads(qkv[2], count);
    const Var seen = mask.defined() ? masked_attention(q, k, v, mask) : attention(q, k, v, {.causal = false});
    return reshape(seen, qkv[0].shape());
  }

  Residual operator()(Residual x, Context& context) const {
    const Tensor mask =
        context.inputs.empty() ? Tensor() : length_mask(context.inputs[0], x.shape()[1], Var(x).value().device());
    const auto attention = [&](const Var& y, size_t s) { return attend(y, s, mask); };
    const auto perceptron = [&](const Var& y, size_t s) { return gelu(intermediate[s](y)); };
    x += dropout(attention_output(x, context, attention), context);
    Residual y = attention_norm(x);
    y += dropout(output(y, context, perceptron), context);
    return output_norm(y);
  }
};

// Weights start from N(0, 0.02^2), biases from zero.
class Bert final : public SegmentedNetwork {
 public:
  Bert(const BertOptions& o, const InputInfo& input, uint64_t seed) : dropout_{o.dropout}, pooled_(o.pooled) {
    const Scope scope(parameters, seed), bert = scope / "bert", embeddings = bert / "embeddings";
    const int64_t symbols = input.symbols.empty() ? input.classes : input.symbols[0];
    words_ = Embedding(embeddings / "word_embeddings", symbols, o.channels, init::normal(kBertDeviation), o.shards);
    positions_ =
        (embeddings / "position_embeddings").parameter("weight", {o.context, o.channels}, init::normal(kBertDeviation));
    types_ = (embeddings / "token_type_embeddings").parameter("weight", {2, o.channels}, init::normal(kBertDeviation));
    norm_ = LayerNorm(embeddings / "LayerNorm", o.channels, kBertEps);
    add_segment("embeddings", [this](const Residual& tokens, Context& c) { return embed(Var(tokens).value(), c); });
    for (int64_t i = 0; i < o.layers; ++i) {
      blocks_.emplace_back(bert / "encoder" / "layer" / i, o);
      const auto run = [this, i](const Residual& x, Context& c) {
        return run_block(blocks_[static_cast<size_t>(i)], x, c);
      };
      add_segment("layer." + std::to_string(i), run, {}, "block");
    }
    if (pooled_) {
      dense_ = Linear(bert / "pooler" / "dense", o.channels, o.channels, bert_init());
      classifier_ = Linear(scope / "classifier", o.channels, input.classes, bert_init());
      add_head();
      return;
    }
    const Scope predictions = scope / "cls" / "predictions";
    biases_ = predictions.shards("bias", {symbols}, init::constant(0.0), {.shards = o.shards, .things = symbols});
    dense_ = Linear(predictions / "transform" / "dense", o.channels, o.channels, bert_init());
    head_norm_ = LayerNorm(predictions / "transform" / "LayerNorm", o.channels, kBertEps);
    add_head({"bert.embeddings.word_embeddings"});
  }

  ShardedLogits head(Residual stream, Context& context) const override {
    const Var x = stream;
    if (pooled_) {
      const Var first = reshape(slice(x, 1, 0, 1), {x.dim(0), x.dim(2)});
      return {.parts = {classifier_(dropout_(tanh(dense_(first)), context))}};
    }
    ShardedLogits logits = words_.logits(head_norm_(gelu(dense_(x))), context);
    const auto begin = static_cast<size_t>(logits.shards.own().begin);
    for (size_t i = 0; i < logits.parts.size(); ++i) logits.parts[i] = logits.parts[i] + biases_[begin + i];
    return logits;
  }

 private:
  Var embed(const Tensor& tokens, Context& context) const {
    const int64_t T = tokens.dim(1);
    check(T <= positions_.dim(0), "[bert] a sequence of {} tokens exceeds the context of {}", T, positions_.dim(0));
    const Var sum = words_(tokens, context) + slice(types_, 0, 0, 1) + slice(positions_, 0, 0, T);
    return dropout_(norm_(sum), context);
  }

  Embedding words_;
  Var positions_, types_;
  LayerNorm norm_, head_norm_;
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
                       BertOptions options{.layers = s.integer("layers", layers, 1, kMostBlocks),
                                           .heads = s.integer("heads", heads),
                                           .channels = s.integer("channels", channels)};
                       options.hidden = s.integer("hidden", 4 * options.channels);
                       options.context = s.integer("context", context ? context : length);
                       options.dropout = s.real("dropout", 0.1, 0.0, 0.99);
                       options.pooled = s.choice("head", "tokens", {"tokens", "pooled"}) == "pooled";
                       s.require(options.channels % options.heads == 0, "heads", "= {} must divide channels = {}",
                                 options.heads, options.channels);
                       s.require(options.context >= length, "context", "= {} is less than the data's {} tokens",
                                 options.context, length);
                       s.require(input.symbols.size() <= 1, "kind", "= '{}' reads one vocabulary, not {} columns",
                                 s.kind(), input.symbols.size());
                       options.shards = virtual_shards(s, {{"heads", options.heads}, {"hidden", options.hidden}});
                       return std::make_unique<Bert>(options, input, seed);
                     }});
  };
  add("bert", 4, 4, 128, 0);
  add("bert-base", 12, 12, 768, 512);
  add("bert-large", 24, 16, 1024, 512);
  return kinds;
}

}  // namespace elinvar
