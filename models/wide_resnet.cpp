// Wide residual networks for small images (Zagoruyko and Komodakis, "Wide residual networks"): three stages of n blocks
// with 16, 32 and 64 channels times the factor `widen`, so that the depth is 6 n + 4. A batch norm and a ReLU precede
// each convolution. Parameters are named as in the usual version for PyTorch: conv1, block1.layer.0.bn1,
// block1.layer.0.conv1, .bn2, .conv2, block1.layer.0.convShortcut (1x1, where channels change), .., bn1, fc.
#include <memory>
#include <optional>
#include <vector>

#include "models/kinds.h"
#include "nn/conv_norm.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/recompute.h"
#include "nn/segments.h"

namespace elinvar {

namespace {

struct WideResNetOptions {
  int64_t depth = 28, widen = 10;
  double dropout = 0.0;  // before the second convolution of each block
};

struct WideBlock {
  BatchNorm2d bn1;
  Conv2d conv1;
  BatchNorm2d bn2;
  Conv2d conv2;
  std::optional<Conv2d> projection;
  Dropout dropout;

  WideBlock(const Scope& scope, int64_t in, int64_t out, int64_t stride, double p)
      : bn1(scope / "bn1", in),
        conv1(unbiased_conv(scope / "conv1", {.in = in, .out = out, .kernel = 3, .stride = stride})),
        bn2(scope / "bn2", out),
        conv2(unbiased_conv(scope / "conv2", {.in = out, .out = out, .kernel = 3})),
        dropout{p} {
    if (in != out) projection = unbiased_conv(scope / "convShortcut", {.in = in, .out = out, .stride = stride});
  }

  Var operator()(const Var& x, Context& context) const {
    const Var normed = bn1(x, context, {.relu = true});
    const Var y = conv2(dropout(bn2(conv1(normed), context, {.relu = true}), context));
    return y + (projection ? (*projection)(normed) : x);
  }
};

// Convolutions start from init::kaiming_normal, the last layer from PyTorch's default with zero biases.
class WideResNet : public SegmentedNetwork {
 public:
  WideResNet(const WideResNetOptions& o, const InputInfo& input, uint64_t seed) {
    const Scope scope(parameters, seed);
    stem_ = unbiased_conv(scope / "conv1", {.in = input.sample[2], .out = 16, .kernel = 3});
    add_segment("conv1", [this](const Residual& images, Context&) { return stem_(images); });
    int64_t channels = 16;
    for (int64_t stage = 1; stage <= 3; ++stage) {
      const int64_t out = (int64_t{8} << stage) * o.widen;
      for (int64_t b = 0; b < (o.depth - 4) / 6; ++b) {
        const Scope block = scope / fmt::format("block{}", stage) / "layer" / b;
        blocks_.emplace_back(block, channels, out, stage > 1 && b == 0 ? 2 : 1, o.dropout);
        add_segment(fmt::format("block{}.{}", stage, b), [this, i = blocks_.size() - 1](const Residual& x, Context& c) {
          return run_block<WideBlock, Var>(blocks_[i], x, c);
        });
        channels = out;
      }
    }
    norm_ = BatchNorm2d(scope / "bn1", channels);
    head_ = Linear(scope / "fc", channels, input.classes, {.bias_values = init::constant(0.0)});
    add_head();
  }

  ShardedLogits head(Residual x, Context& context) const override {
    return {.parts = {head_(global_avg_pool(norm_(x, context, {.relu = true})))}};
  }

 private:
  Conv2d stem_;
  std::vector<WideBlock> blocks_;
  BatchNorm2d norm_;
  Linear head_;
};

}  // namespace

std::vector<ModelKind> wide_resnet_kinds() {
  return {{"wide_resnet", [](Settings& s, const InputInfo& input, uint64_t seed) -> std::unique_ptr<Network> {
             require_images(s, input);
             const WideResNetOptions options{.depth = s.integer("depth", 28, 10, 2 * kMostBlocks),
                                             .widen = s.integer("widen", 10, 1, 1024),
                                             .dropout = s.real("dropout", 0.0, 0.0, 0.99)};
             s.require(options.depth % 6 == 4, "depth", "= {} must be 6 n + 4, such as 16, 22, 28 or 40",
                       options.depth);
             return std::make_unique<WideResNet>(options, input, seed);
           }}};
}

}  // namespace elinvar
