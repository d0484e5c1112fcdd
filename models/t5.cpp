// T5 (C. Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text transformer", JMLR
// 2020): an encoder of a source and a decoder that predicts each next token of a target from it. RMS norm comes before
// each branch; attention adds a bias for each bucket of relative positions, of which each stack has one table, and does
// not scale scores, which the initial values account for. The perceptron has a ReLU, or in version 1.1 a gate. Dropout
// applies to embeddings, to the end of each branch and to the end of each stack. Parameters are named as in Hugging
// Face's T5ForConditionalGeneration: shared, lm_head, and in encoder and decoder block.<i>.layer.<j>.layer_norm,
// .SelfAttention.{q,k,v,o}, .EncDecAttention, .DenseReluDense.{wi,wo} or {wi_0,wi_1,wo}, final_layer_norm, and
// block.0.layer.0.SelfAttention.relative_attention_bias. Virtual shards cut heads, hidden channels of the perceptron,
// and rows of the vocabulary.
//
// Inputs: sources (B, S), targets that begin with a start symbol (B, T), and the sources' lengths (B, 1). Between
// segments passes one value (B, S + T + R, C): the source, the target, and R rows that hold both tables of biases, so
// that blocks of a stack may be in different stages of a pipeline. With a cache (nn/attention_cache.h) the first
// targets come with the source; the encoder does not run again for those that follow.
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/linear.h"
#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/shape.h"
#include "models/kinds.h"
#include "models/relative_position.h"
#include "nn/attention.h"
#include "nn/attention_cache.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/masked_attention.h"
#include "nn/norm.h"
#include "nn/recompute.h"
#include "nn/segments.h"
#include "nn/sharded_linear.h"

namespace elinvar {
namespace {

struct T5Options {
  int64_t layers = 4, decoder_layers = 4, heads = 4, channels = 128;
  int64_t head_channels = 32, hidden = 512;
  int64_t buckets = 32, max_distance = 128;  // of relative positions (models/relative_position.h)
  double dropout = 0.1;
  bool gated = false;     // version 1.1: gelu_tanh(wi_0 x) * (wi_1 x) instead of relu(wi x)
  bool tied_head = true;  // the head is the embedding, and its input is divided by sqrt(channels)
  int shards = 1;         // virtual shards, at most `heads` and `hidden`

  int64_t biases() const { return buckets * heads; }  // of one stack
  int64_t table_rows() const { return (2 * biases() - 1) / channels + 1; }
};

constexpr double kT5Eps = 1e-6;

LinearInit t5_linear(int64_t fan_in) {
  return {.bias = false, .weight = init::normal(1 / std::sqrt(static_cast<double>(fan_in)))};
}

// The value between segments.
struct T5Stream {
  Var source, target, tables;  // (B, S, C), (B, T, C), (B, R, C)

  T5Stream(const Var& value, const T5Options& o, const Context& context) {
    const int64_t targets = context.inputs.at(0).dim(1), rows = o.table_rows();
    std::vector<Var> parts = split(value, {value.dim(1) - targets - rows, targets, rows}, 1);
    source = std::move(parts[0]);
    target = std::move(parts[1]);
    tables = std::move(parts[2]);
  }
  T5Stream(Var a, Var b, Var c) : source(std::move(a)), target(std::move(b)), tables(std::move(c)) {}
  Var joined() const { return concat({source, target, tables}, 1); }
};

// Both tables (buckets, heads) as rows (B, R, C), and one of them from such rows.
Var t5_rows(const Var& encoder, const Var& decoder, int64_t samples, const T5Options& o) {
  const int64_t n = o.biases(), rows = o.table_rows();
  const Var flat = concat({reshape(encoder, {n}), reshape(decoder, {n})}, 0);
  const Var padded = pad(flat, {0}, {rows * o.channels - 2 * n});
  return expand(reshape(padded, {1, rows, o.channels}), {samples, rows, o.channels});
}
Var t5_table(const Var& rows, bool decoder, const T5Options& o) {
  const int64_t n = o.biases(), begin = decoder ? n : 0;
  return reshape(slice(reshape(slice(rows, 0, 0, 1), {rows.dim(1) * rows.dim(2)}), 0, begin, begin + n),
                 {o.buckets, o.heads});
}

// table (buckets, H) -> (1, H, T, T): the bias of each pair of a query and a key. It depends on their distance alone,
// so a row has the biases of all distances d at place d mod 2 T. Of many such rows, one after another, elements
// i (2 T - 1) + j are those at place (j - i) mod 2 T.
Var t5_position_bias(const Var& table, int64_t T, bool both, const T5Options& o) {
  const auto make = [T, both, o](std::span<const Tensor>) {
    Tensor buckets = Tensor::empty({2 * T}, DType::i64);
    for (int64_t p = 0; p < 2 * T; ++p)
      buckets.data<int64_t>()[p] = relative_bucket(p < T ? p : p - 2 * T, both, o.buckets, o.max_distance);
    return std::vector{buckets};
  };
  const int64_t heads = table.dim(1);
  const Var row = reshape(transpose(embedding(table, derived({}, make)[0]), 0, 1), {heads, 1, 2 * T});
  const Var rows = reshape(expand(row, {heads, T, 2 * T}), {heads, 2 * T * T});
  return reshape(slice(reshape(slice(rows, 1, 0, T * (2 * T - 1)), {heads, T, 2 * T - 1}), 2, 0, T), {1, heads, T, T});
}

// The rows of the queries from `first` on, (1, H, T - first, T).
Var t5_position_bias_of(const Var& table, int64_t first, int64_t T, const T5Options& o) {
  Tensor buckets = Tensor::empty({T - first, T}, DType::i64);
  for (int64_t i = first; i < T; ++i)
    for (int64_t j = 0; j < T; ++j)
      buckets.data<int64_t>()[(i - first) * T + j] = relative_bucket(j - i, /*both=*/false, o.buckets, o.max_distance);
  return reshape(permute(embedding(table, buckets.to(table.value().device())), {2, 0, 1}),
                 {1, table.dim(1), T - first, T});
}

// Returns whether targets before these are in the cache.
bool follows(const Context& context) { return context.cache && context.cache->length() > 0; }

struct T5Attention {
  std::vector<Linear> q, k, v;  // one per shard
  RowParallelLinear o;
  Cut heads;
  int64_t slot;  // of the first shard in the cache

  T5Attention(const Scope& s, const T5Options& t, int64_t layer)
      : heads{.shards = t.shards, .things = t.heads}, slot(layer * t.shards) {
    const int64_t inner = t.heads * t.head_channels;
    q = column_parallel_linear(s / "q", t.channels, inner, t5_linear(t.channels * t.head_channels), heads);
    k = column_parallel_linear(s / "k", t.channels, inner, t5_linear(t.channels), heads);
    v = column_parallel_linear(s / "v", t.channels, inner, t5_linear(t.channels), heads);
    o = RowParallelLinear(s / "o", inner, t.channels, t5_linear(inner), heads);
  }

  // The place of shard s among those that are computed here.
  size_t place(size_t s, const Context& context) const {
    return s - static_cast<size_t>(context.shards(heads.shards).own().begin);
  }
  Var split(const Var& x, size_t s) const { return split_heads(x, heads.things_of(static_cast<int>(s)).count); }
  static Var attend(const Var& queries, const Var& keys, const Var& values, const Var& bias) {
    const Var seen = masked_attention(queries, keys, values, bias, /*scale=*/1.0);
    return reshape(seen, {seen.dim(0), seen.dim(1), seen.dim(2) * seen.dim(3)});
  }

  // x (B, T, C) attends to itself, in the decoder also to what is in the cache. `table` (buckets, heads) has its
  // biases; `mask` is added to them.
  Var to_itself(const Var& x, const Var& table, const Tensor& mask, bool both, const T5Options& t,
                const Context& context) const {
    const std::vector<Var> tables = copy_to_shards(table, context.shards(heads.shards));
    return o(x, context, [&](const Var& y, size_t s) {
      const IndexShard own = heads.things_of(static_cast<int>(s));
      const Var biases = slice(tables[place(s, context)], 1, own.first, own.first + own.count);
      const std::vector<Var> qkv = linears(y, {q[s], k[s], v[s]});
      Var keys = split(qkv[1], s), values = split(qkv[2], s);
      if (!both && context.cache)
        std::tie(keys, values) = context.cache->extend(slot + static_cast<int64_t>(s), keys, values);
      const int64_t T = keys.dim(1), first = T - y.dim(1);
      const Var bias = first > 0 ? t5_position_bias_of(biases, first, T, t) : t5_position_bias(biases, T, both, t);
      return attend(split(qkv[0], s), keys, values, bias + Var(mask));
    });
  }
  // x (B, T, C) attends to the encoder's output (B, S, C).
  Var to_source(const Var& x, const Var& encoded, const Tensor& mask, const Context& context) const {
    const std::vector<Var> sources = copy_to_shards(encoded, context.shards(heads.shards));
    return o(x, context, [&](const Var& y, size_t s) {
      const auto project = [&] {
        const std::vector<Var> kv = linears(sources[place(s, context)], {k[s], v[s]});
        return std::vector{split(kv[0], s), split(kv[1], s)};
      };
      const std::vector<Var> kv =
          context.cache ? context.cache->once(slot + static_cast<int64_t>(s), project) : project();
      return attend(split(q[s](y), s), kv[0], kv[1], mask);
    });
  }
};

struct T5Perceptron {
  std::vector<Linear> in, gate;  // one per shard; `gate` is empty in the first version
  RowParallelLinear out;

  T5Perceptron(const Scope& s, const T5Options& o) {
    const Cut hidden{.shards = o.shards, .things = o.hidden};
    const LinearInit init = t5_linear(o.channels);
    if (o.gated) gate = column_parallel_linear(s / "wi_0", o.channels, o.hidden, init, hidden);
    in = column_parallel_linear(s / (o.gated ? "wi_1" : "wi"), o.channels, o.hidden, init, hidden);
    out = RowParallelLinear(s / "wo", o.hidden, o.channels, t5_linear(o.hidden), hidden);
  }

  Var operator()(const Var& x, const Context& context) const {
    return out(x, context, [&](const Var& y, size_t s) {
      if (gate.empty()) return relu(in[s](y));
      const std::vector<Var> hidden = linears(y, {gate[s], in[s]});
      return gelu_tanh(hidden[0]) * hidden[1];
    });
  }
};

struct T5EncoderBlock {
  const T5Options& options;
  RmsNorm norm0, norm1;
  T5Attention attention;
  T5Perceptron perceptron;

  T5EncoderBlock(const Scope& s, const T5Options& o, int64_t /*layer*/)
      : options(o),
        norm0(s / "layer" / 0 / "layer_norm", o.channels, kT5Eps),
        norm1(s / "layer" / 1 / "layer_norm", o.channels, kT5Eps),
        attention(s / "layer" / 0 / "SelfAttention", o, /*layer=*/0),
        perceptron(s / "layer" / 1 / "DenseReluDense", o) {}

  Var operator()(const Var& value, Context& context) const {
    if (follows(context)) return value;
    const Dropout dropout{options.dropout};
    T5Stream stream(value, options, context);
    Residual x = stream.source;
    const Tensor mask = length_mask(context.inputs.at(1), x.shape()[1], stream.source.value().device());
    const Var table = t5_table(stream.tables, /*decoder=*/false, options);
    x += dropout(attention.to_itself(norm0(x), table, mask, /*both=*/true, options, context), context);
    x += dropout(perceptron(norm1(x), context), context);
    stream.source = x;
    return stream.joined();
  }
};

struct T5DecoderBlock {
  const T5Options& options;
  RmsNorm norm0, norm1, norm2;
  T5Attention attention, cross;
  T5Perceptron perceptron;

  T5DecoderBlock(const Scope& s, const T5Options& o, int64_t layer)
      : options(o),
        norm0(s / "layer" / 0 / "layer_norm", o.channels, kT5Eps),
        norm1(s / "layer" / 1 / "layer_norm", o.channels, kT5Eps),
        norm2(s / "layer" / 2 / "layer_norm", o.channels, kT5Eps),
        attention(s / "layer" / 0 / "SelfAttention", o, layer),
        cross(s / "layer" / 1 / "EncDecAttention", o, layer),
        perceptron(s / "layer" / 2 / "DenseReluDense", o) {}

  Var operator()(const Var& value, Context& context) const {
    const Dropout dropout{options.dropout};
    T5Stream stream(value, options, context);
    Residual x = stream.target;
    const Device device = stream.target.value().device();
    const int64_t first = context.cache ? context.cache->length() : 0;
    const Tensor later = causal_mask(first + x.shape()[1], device, first);
    const Tensor beyond = length_mask(context.inputs.at(1), stream.source.dim(1), device);
    const Var table = t5_table(stream.tables, /*decoder=*/true, options);
    x += dropout(attention.to_itself(norm0(x), table, later, /*both=*/false, options, context), context);
    x += dropout(cross.to_source(norm1(x), stream.source, beyond, context), context);
    x += dropout(perceptron(norm2(x), context), context);
    stream.target = x;
    return stream.joined();
  }
};

// Initial values are normal, with the deviations of the paper's implementation: embeddings 1, queries
// 1 / sqrt(channels * head_channels), others 1 / sqrt(inputs), and biases and a head of its own 1 / sqrt(channels).
class T5 final : public SegmentedNetwork {
 public:
  T5(const T5Options& o, int64_t symbols, uint64_t seed) : options_(o), dropout_{o.dropout} {
    const Scope scope(parameters, seed), encoder = scope / "encoder", decoder = scope / "decoder";
    const Initializer small = init::normal(1 / std::sqrt(static_cast<double>(o.channels)));
    shared_ = Embedding(scope / "shared", symbols, o.channels, init::normal(1.0), o.shards);
    const auto table = [&](const Scope& stack) {
      const Scope first = stack / "block" / 0 / "layer" / 0 / "SelfAttention";
      return (first / "relative_attention_bias").parameter("weight", {o.buckets, o.heads}, small);
    };
    encoder_table_ = table(encoder);
    decoder_table_ = table(decoder);
    add_segment("embeddings", [this](const Residual& tokens, Context& c) { return embed(Var(tokens).value(), c); });
    for (int64_t i = 0; i < o.layers; ++i) {
      encoder_.emplace_back(encoder / "block" / i, options_, i);
      add_block(encoder_, i, "encoder");
    }
    encoder_norm_ = RmsNorm(encoder / "final_layer_norm", o.channels, kT5Eps);
    add_segment("encoder.final_layer_norm", [this](const Residual& x, Context& c) -> Residual {
      if (follows(c)) return x;
      T5Stream stream(x, options_, c);
      stream.source = dropout_(encoder_norm_(stream.source), c);
      if (c.cache) c.cache->once(place_of_source(), [&] { return std::vector{stream.source}; });
      return stream.joined();
    });
    for (int64_t i = 0; i < o.decoder_layers; ++i) {
      decoder_.emplace_back(decoder / "block" / i, options_, i);
      add_block(decoder_, i, "decoder");
    }
    decoder_norm_ = RmsNorm(decoder / "final_layer_norm", o.channels, kT5Eps);
    if (!o.tied_head) head_ = Embedding(scope / "lm_head", symbols, o.channels, small, o.shards);
    add_head(o.tied_head ? std::vector<std::string>{"shared"} : std::vector<std::string>{});
  }

  ShardedLogits head(Residual value, Context& context) const override {
    Var x = dropout_(decoder_norm_(T5Stream(value, options_, context).target), context);
    if (context.cache) x = context.cache->advance(x);
    if (!options_.tied_head) return head_.logits(x, context);
    return shared_.logits(x * (1 / std::sqrt(static_cast<double>(options_.channels))), context);
  }

  // Exact products would round the keys and values of the present targets together, also those of earlier ones, so
  // earlier targets would have other bits with every further one.
  bool continues() const override { return product_precision() != Precision::exact; }

 private:
  // The encoder's output has the place after those of keys and values of the source.
  int64_t place_of_source() const { return options_.decoder_layers * options_.shards; }

  template <class Blocks>
  void add_block(const Blocks& blocks, int64_t i, const std::string& stack) {
    const auto run = [&blocks, i](const Residual& x, Context& c) -> Residual {
      return run_block(blocks[static_cast<size_t>(i)], Var(x), c);
    };
    add_segment(stack + ".block." + std::to_string(i), run, {}, stack + " block");
  }

  Residual embed(const Tensor& sources, Context& context) const {
    check(context.inputs.size() == 2 && sources.ndim() == 2 && context.inputs[0].ndim() == 2,
          "[t5] sources (B, S), targets (B, T) and lengths (B, 1) expected, got {} inputs", 1 + context.inputs.size());
    const Var source = follows(context) ? context.cache->once(place_of_source(), {})[0]
                                        : dropout_(shared_(sources, context), context),
              target = dropout_(shared_(context.inputs[0], context), context);
    return T5Stream(source, target, t5_rows(encoder_table_, decoder_table_, sources.dim(0), options_)).joined();
  }

  T5Options options_;
  Dropout dropout_;
  Embedding shared_, head_;
  Var encoder_table_, decoder_table_;
  std::vector<T5EncoderBlock> encoder_;
  std::vector<T5DecoderBlock> decoder_;
  RmsNorm encoder_norm_, decoder_norm_;
};

void require_pairs(const Settings& s, const InputInfo& input) {
  const auto tokens = [](const auto& field) { return field.dtype == DType::i32 && field.sample.ndim() == 1; };
  const bool pairs = tokens(input) && input.symbols.size() == 1 && input.further.size() == 2 &&
                     tokens(input.further[0]) && tokens(input.further[1]) && input.further[1].sample[0] == 1;
  s.require(pairs, "kind",
            "= '{}' takes pairs of texts, as data of kind 'text_pairs': tokens of the source and the target, and the "
            "source's length; the data's first of {} inputs is {} {}",
            s.kind(), 1 + input.further.size(), name_of(input.dtype), to_string(input.sample));
  s.require(input.further[0].symbols == input.symbols && input.classes == input.symbols[0], "kind",
            "= '{}' needs one vocabulary for sources and targets", s.kind());
}

}  // namespace

std::vector<ModelKind> t5_kinds() {
  std::vector<ModelKind> kinds;
  const auto add = [&](const std::string& name, int64_t layers, int64_t heads, int64_t channels, int64_t width) {
    kinds.push_back({name, [=](Settings& s, const InputInfo& input, uint64_t seed) {
                       require_pairs(s, input);
                       T5Options o{.layers = s.integer("layers", layers, 1, kMostBlocks / 2),
                                   .heads = s.integer("heads", heads, 1, 1 << 20),
                                   .channels = s.integer("channels", channels)};
                       o.decoder_layers = s.integer("decoder_layers", o.layers, 1, kMostBlocks / 2);
                       o.head_channels =
                           s.integer("head_channels", width ? width : std::max<int64_t>(1, o.channels / o.heads));
                       o.hidden = s.integer("hidden", 4 * o.channels);
                       o.buckets = s.integer("buckets", 32, 4, 64);
                       o.max_distance = s.integer("max_distance", 128, 1, 1 << 20);
                       o.dropout = s.real("dropout", 0.1, 0.0, 0.99);
                       o.gated = s.boolean("gated", false);
                       o.tied_head = s.boolean("tied_head", true);
                       s.require(o.max_distance > o.buckets / 2, "max_distance",
                                 "= {} must be more than half of buckets = {}", o.max_distance, o.buckets);
                       o.shards = virtual_shards(
                           s, {{"heads", o.heads}, {"hidden", o.hidden}, {"the vocabulary", input.symbols[0]}});
                       return std::make_unique<T5>(o, input.symbols[0], seed);
                     }});
  };
  add("t5", 4, 4, 128, 0);
  add("t5-small", 6, 8, 512, 64);
  add("t5-base", 12, 12, 768, 64);
  add("t5-large", 24, 16, 1024, 64);
  return kinds;
}

}  // namespace elinvar
