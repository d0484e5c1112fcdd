// Residual networks (He et al., "Deep residual learning for image recognition"; the stride of a bottleneck is in its
// 3x3 convolution), and those whose bottlenecks are twice as wide (Zagoruyko and Komodakis, "Wide residual networks";
// models/wide_resnet.cpp has the paper's networks for small images). Parameters are named as in torchvision: conv1,
// bn1, layer1.0.conv1, layer1.0.bn1, ..., layer2.0.downsample.0 (convolution), layer2.0.downsample.1 (batch norm), fc.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "autograd/shape.h"
#include "models/kinds.h"
#include "nn/conv_norm.h"
#include "nn/linear.h"
#include "nn/recompute.h"
#include "nn/segments.h"

namespace elinvar {

namespace {

struct ResNetOptions {
  std::vector<int64_t> blocks = {2, 2, 2, 2};                 // per stage; all but the first stage halve the image
  std::vector<int64_t> widths = {64, 128, 256, 512};          // of the 3x3 convolutions, per stage
  bool bottleneck = false;                                    // blocks of 1x1, 3x3, 1x1 with four times the width out
  int64_t widen = 1;                                          // of the 3x3 convolution of a bottleneck
  enum class Stem { imagenet, cifar } stem = Stem::imagenet;  // 7x7/2 and a 3x3/2 max-pool, or 3x3
  // If a block changes shape, its shortcut is a strided 1x1 convolution with batch norm (option B of the paper), or
  // every second pixel with zeros for the new channels, half before and half after (option A).
  enum class Shortcut { projection, pad } shortcut = Shortcut::projection;
  bool zero_init_residual = false;  // the last batch norm of a block starts with weight 0, so the block as identity
};

struct ResNetBlock {
  std::vector<ConvNorm> layers;
  std::optional<ConvNorm> projection;
  int64_t stride = 1, pad_channels = 0;

  ResNetBlock(const Scope& scope, const ResNetOptions& options, int64_t in, int64_t width, int64_t first_stride)
      : stride(first_stride) {
    const int64_t out = options.bottleneck ? 4 * width : width;
    const double last = options.zero_init_residual ? 0.0 : 1.0;
    const auto add = [&](const ConvShape& shape, double norm_weight = 1.0) {
      const std::string index = std::to_string(layers.size() + 1);
      layers.emplace_back(scope / ("conv" + index), scope / ("bn" + index), shape, init::kaiming_normal(), norm_weight);
    };
    if (options.bottleneck) {
      const int64_t inner = options.widen * width;
      add({.in = in, .out = inner});
      add({.in = inner, .out = inner, .kernel = 3, .stride = stride});
      add({.in = inner, .out = out}, last);
    } else {
      add({.in = in, .out = width, .kernel = 3, .stride = stride});
      add({.in = width, .out = out, .kernel = 3}, last);
    }
    if (stride == 1 && in == out) return;
    if (options.shortcut == ResNetOptions::Shortcut::pad) {
      pad_channels = out - in;
    } else {
      const Scope downsample = scope / "downsample";
      projection.emplace(downsample / 0, downsample / 1, ConvShape{.in = in, .out = out, .stride = stride});
    }
  }

  Var shortcut(const Var& x, Context& context) const {
    if (projection) return (*projection)(x, context);
    Var y = x;
    for (int d = 1; stride > 1 && d <= 2; ++d) y = slice(y, d, 0, y.dim(d), stride);
    const int64_t before = pad_channels / 2;
    return pad_channels ? pad(y, {0, 0, 0, before}, {0, 0, 0, pad_channels - before}) : y;
  }

  Var operator()(const Var& x, Context& context) const {
    Var y = x;
    for (size_t i = 0; i + 1 < layers.size(); ++i) y = layers[i](y, context, {.relu = true});
    return layers.back()(y, context, {.relu = true, .residual = shortcut(x, context)});
  }
};

// Convolutions start from init::kaiming_normal, the last layer from PyTorch's default.
class ResNet : public SegmentedNetwork {
 public:
  ResNet(const ResNetOptions& options, const InputInfo& input, uint64_t seed)
      : pool_(options.stem == ResNetOptions::Stem::imagenet) {
    const Scope scope(parameters, seed);
    const ConvShape stem{
        .in = input.sample[2], .out = options.widths[0], .kernel = pool_ ? 7 : 3, .stride = pool_ ? 2 : 1};
    stem_ = ConvNorm(scope / "conv1", scope / "bn1", stem);
    add_segment("stem", [this](const Residual& images, Context& c) { return pooled_stem(images, c); });
    int64_t channels = options.widths[0];
    for (size_t stage = 0; stage < options.blocks.size(); ++stage) {
      const Scope layer = scope / ("layer" + std::to_string(stage + 1));
      for (int64_t b = 0; b < options.blocks[stage]; ++b) {
        blocks_.emplace_back(layer / b, options, channels, options.widths[stage], stage > 0 && b == 0 ? 2 : 1);
        add_segment(fmt::format("layer{}.{}", stage + 1, b),
                    [this, i = blocks_.size() - 1](const Residual& x, Context& c) {
                      return run_block<ResNetBlock, Var>(blocks_[i], x, c);
                    });
        channels = options.widths[stage] * (options.bottleneck ? 4 : 1);
      }
    }
    head_ = Linear(scope / "fc", channels, input.classes);
    add_head();
  }

  ShardedLogits head(Residual stream, Context&) const override { return {.parts = {head_(global_avg_pool(stream))}}; }

 private:
  Var pooled_stem(const Var& images, Context& context) const {
    const Var x = stem_(images, context, {.relu = true});
    return pool_ ? max_pool2d(x, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}) : x;
  }

  bool pool_;
  ConvNorm stem_;
  std::vector<ResNetBlock> blocks_;
  Linear head_;
};

// The settings that all kinds share; the rest of `options` is the kind's own.
std::unique_ptr<Network> configured(ResNetOptions options, Settings& s, const InputInfo& input, uint64_t seed) {
  require_images(s, input);
  s.require(options.blocks.size() == options.widths.size() && !options.blocks.empty(), "blocks",
            "and widths must be of one length, a number for each stage");
  s.require(std::ranges::all_of(options.blocks, [](int64_t n) { return n <= kMostBlocks; }) &&
                std::accumulate(options.blocks.begin(), options.blocks.end(), int64_t{0}) <= kMostBlocks,
            "blocks", "must be at most {} altogether", kMostBlocks);
  const bool cifar = is_small(input) || options.stem == ResNetOptions::Stem::cifar;
  options.stem = cifar_stem(s, cifar) ? ResNetOptions::Stem::cifar : ResNetOptions::Stem::imagenet;
  options.shortcut = s.choice("shortcut", "projection", {"projection", "pad"}) == "pad"
                         ? ResNetOptions::Shortcut::pad
                         : ResNetOptions::Shortcut::projection;
  options.zero_init_residual = s.boolean("zero_init_residual", false);
  return std::make_unique<ResNet>(options, input, seed);
}

}  // namespace

std::vector<ModelKind> resnet_kinds() {
  std::vector<ModelKind> kinds;
  const auto add = [&](const std::string& name, const ResNetOptions& options) {
    kinds.push_back({name, [options](Settings& s, const InputInfo& input, uint64_t seed) {
                       return configured(options, s, input, seed);
                     }});
  };
  add("resnet18", {.blocks = {2, 2, 2, 2}});
  add("resnet34", {.blocks = {3, 4, 6, 3}});
  add("resnet50", {.blocks = {3, 4, 6, 3}, .bottleneck = true});
  add("resnet101", {.blocks = {3, 4, 23, 3}, .bottleneck = true});
  add("resnet152", {.blocks = {3, 8, 36, 3}, .bottleneck = true});
  add("wide_resnet50_2", {.blocks = {3, 4, 6, 3}, .bottleneck = true, .widen = 2});
  add("wide_resnet101_2", {.blocks = {3, 4, 23, 3}, .bottleneck = true, .widen = 2});
  for (const int64_t depth : {20, 32, 44, 56, 110}) {
    const int64_t n = (depth - 2) / 6;
    add("resnet" + std::to_string(depth),
        {.blocks = {n, n, n}, .widths = {16, 32, 64}, .stem = ResNetOptions::Stem::cifar});
  }
  kinds.push_back({"resnet", [](Settings& s, const InputInfo& input, uint64_t seed) {
                     return configured({.blocks = s.integers("blocks", {2, 2, 2, 2}),
                                        .widths = s.integers("widths", {64, 128, 256, 512}),
                                        .bottleneck = s.boolean("bottleneck", false)},
                                       s, input, seed);
                   }});
  return kinds;
}

}  // namespace elinvar
