#pragma once
// The parts that BERT and ELECTRA share: the sum of embeddings, and a block of the encoder with a layer norm after each
// residual sum. Weights start from N(0, 0.02^2), biases from zero.
#include <vector>

#include "autograd/linear.h"
#include "autograd/pointwise.h"
#include "autograd/shape.h"
#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/masked_attention.h"
#include "nn/norm.h"
#include "nn/sharded_linear.h"
#include "tensor/base/check.h"

namespace elinvar {

struct BertSizes {
  int64_t heads = 12, channels = 768, hidden = 3072;
  double dropout = 0.1;
  int shards = 1;             // virtual shards, at most `heads` and `hidden`
  bool reads_lengths = true;  // a second input, if there is one, has the lengths of the sequences
};

inline constexpr double kBertDeviation = 0.02, kBertEps = 1e-12;

inline LinearInit bert_init() {
  return {.bias = true, .weight = init::normal(kBertDeviation), .bias_values = init::constant(0.0)};
}

struct BertBlock {
  std::vector<Linear> query, key, value, intermediate;  // one per shard
  RowParallelLinear attention_output, output;
  LayerNorm attention_norm, output_norm;
  Cut heads;
  Dropout dropout;
  bool reads_lengths;

  BertBlock(const Scope& s, const BertSizes& o)
      : heads{.shards = o.shards, .things = o.heads}, dropout{o.dropout}, reads_lengths(o.reads_lengths) {
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
    const bool lengths = reads_lengths && !context.inputs.empty();
    const Tensor mask = lengths ? length_mask(context.inputs[0], x.shape()[1], Var(x).value().device()) : Tensor();
    const auto attention = [&](const Var& y, size_t s) { return attend(y, s, mask); };
    const auto perceptron = [&](const Var& y, size_t s) { return gelu(intermediate[s](y)); };
    x += dropout(attention_output(x, context, attention), context);
    Residual y = attention_norm(x);
    y += dropout(output(y, context, perceptron), context);
    return output_norm(y);
  }
};

// Embeddings of words, positions and the first type, added, and their norm.
struct BertEmbeddings {
  Embedding words;
  Var positions, types;
  LayerNorm norm;
  Dropout dropout;

  BertEmbeddings() = default;
  BertEmbeddings(const Scope& s, int64_t symbols, int64_t context, int64_t channels, double p, int shards = 1)
      : words(s / "word_embeddings", symbols, channels, init::normal(kBertDeviation), shards), dropout{p} {
    positions = (s / "position_embeddings").parameter("weight", {context, channels}, init::normal(kBertDeviation));
    types = (s / "token_type_embeddings").parameter("weight", {2, channels}, init::normal(kBertDeviation));
    norm = LayerNorm(s / "LayerNorm", channels, kBertEps);
  }

  // tokens (N, T) -> (N, T, channels)
  Var operator()(const Tensor& tokens, Context& context) const {
    const int64_t length = tokens.dim(1);
    check(length <= positions.dim(0), "[bert] a sequence of {} tokens exceeds the context of {}", length,
          positions.dim(0));
    const Var sum = words(tokens, context) + slice(types, 0, 0, 1) + slice(positions, 0, 0, length);
    return dropout(norm(sum), context);
  }
};

}  // namespace elinvar
