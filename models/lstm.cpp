// A language model of layers of long short-term memory (W. Zaremba et al., "Recurrent Neural Network Regularization",
// 2014), with dropout before, between and after them. Each sample begins with a state of zeros, so gradients reach as
// far back as a sample is long. Parameters are named as in PyTorch's example word_language_model: encoder.weight,
// rnn.weight_ih_l0 and so on (nn/lstm.h), decoder.weight, decoder.bias.
#include <memory>
#include <string>
#include <vector>

#include "models/kinds.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/lstm.h"
#include "nn/recompute.h"
#include "nn/segments.h"

namespace elinvar {
namespace {

struct LstmOptions {
  int64_t layers = 2, channels = 256, hidden = 256;
  double dropout = 0;
  bool tied_head = false;  // the decoder's weight is the encoder's
};

constexpr double kLstmBound = 0.1;  // of the initial values of encoder and decoder

struct LstmBlock {
  LstmLayer layer;
  Dropout dropout;
  Var operator()(const Var& x, Context& context) const { return layer(dropout(x, context)); }
};

class LstmModel final : public SegmentedNetwork {
 public:
  LstmModel(const LstmOptions& o, int64_t symbols, uint64_t seed) : dropout_{o.dropout} {
    const Scope scope(parameters, seed);
    encoder_ = Embedding(scope / "encoder", symbols, o.channels, init::uniform(kLstmBound));
    add_segment("encoder", [this](const Residual& tokens, Context& c) { return encoder_(Var(tokens).value(), c); });
    for (int64_t l = 0; l < o.layers; ++l) {
      blocks_.push_back({{scope / "rnn", l, l == 0 ? o.channels : o.hidden, o.hidden}, dropout_});
      const auto run = [this, l](const Residual& x, Context& c) {
        return run_block(blocks_[static_cast<size_t>(l)], Var(x), c);
      };
      add_segment("rnn." + std::to_string(l), run, {}, "block");
    }
    const Scope decoder = scope / "decoder";
    decoder_ = o.tied_head ? encoder_ : Embedding(decoder, symbols, o.hidden, init::uniform(kLstmBound));
    bias_ = decoder.parameter("bias", {symbols}, init::constant(0.0));
    add_head(o.tied_head ? std::vector<std::string>{"encoder"} : std::vector<std::string>{});
  }

  ShardedLogits head(Residual x, Context& context) const override {
    ShardedLogits logits = decoder_.logits(dropout_(x, context), context);
    logits.parts[0] = logits.parts[0] + bias_;
    return logits;
  }

 private:
  Embedding encoder_, decoder_;
  Dropout dropout_;
  std::vector<LstmBlock> blocks_;
  Var bias_;
};

}  // namespace

std::vector<ModelKind> lstm_kinds() {
  return {{"lstm", [](Settings& s, const InputInfo& input, uint64_t seed) -> std::unique_ptr<Network> {
             require_tokens(s, input);
             LstmOptions options{.layers = s.integer("layers", 2, 1, kMostBlocks),
                                 .channels = s.integer("channels", 256)};
             options.hidden = s.integer("hidden", options.channels);
             options.dropout = s.real("dropout", 0.0, 0.0, 0.99);
             options.tied_head = s.boolean("tied_head", false);
             s.require(!options.tied_head || options.hidden == options.channels, "tied_head",
                       "= true needs hidden = channels, got {} and {}", options.hidden, options.channels);
             return std::make_unique<LstmModel>(options, input.classes, seed);
           }}};
}

}  // namespace elinvar
