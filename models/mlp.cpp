// A multilayer perceptron on flattened samples: linear layers, an activation (and dropout) after each but the last.
// Parameters: layers.<i>.weight, layers.<i>.bias.
#include <memory>
#include <string>
#include <vector>

#include "autograd/shape.h"
#include "models/activation.h"
#include "models/kinds.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/segments.h"

namespace elinvar {

namespace {

struct MlpOptions {
  std::vector<int64_t> hidden = {256};
  std::string activation = "relu";
  double dropout = 0.0;
};

class Mlp : public SegmentedNetwork {
 public:
  Mlp(const MlpOptions& options, const InputInfo& input, uint64_t seed)
      : activation_(activation(options.activation)), dropout_{options.dropout} {
    const Scope scope(parameters, seed, "layers.");
    int64_t in = input.sample.numel();
    std::vector<int64_t> widths = options.hidden;
    widths.push_back(input.classes);
    add_segment("flatten", [](const Residual& stream, Context&) {
      const Var x = stream;
      return reshape(x, {x.dim(0), -1});
    });
    for (size_t i = 0; i < widths.size(); in = widths[i++]) {
      layers_.emplace_back(scope / static_cast<int64_t>(i), in, widths[i]);
      if (i + 1 < widths.size())
        add_segment(fmt::format("layers.{}", i),
                    [this, i](const Residual& x, Context& c) { return dropout_(activation_(layers_[i](x)), c); });
    }
    add_head();
  }

  ShardedLogits head(Residual x, Context&) const override { return {.parts = {layers_.back()(x)}}; }

 private:
  std::vector<Linear> layers_;
  Activation activation_;
  Dropout dropout_;
};

}  // namespace

std::vector<ModelKind> mlp_kinds() {
  return {{"mlp", [](Settings& s, const InputInfo& input, uint64_t seed) {
             s.require(input.dtype != DType::i32, "kind", "= 'mlp' takes images or features, not tokens");
             const MlpOptions options{.hidden = s.integers("hidden", {256}),
                                      .activation = s.choice("activation", "relu", activation_names()),
                                      .dropout = s.real("dropout", 0.0, 0.0, 0.99)};
             return std::make_unique<Mlp>(options, input, seed);
           }}};
}

}  // namespace elinvar
