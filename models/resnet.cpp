// Residual networks (He et al., "Deep residual learning for image recognition"; the stride of a bottleneck is in its
// 3x3 convolution). Parameters are named as in torchvision: conv1, bn1, layer1.0.conv1, layer1.0.bn1, ...,
// layer2.0.downsample.0 (convolution), layer2.0.downsample.1 (batch norm), fc.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "autograd/shape.h"
#include "models/kinds.h"
#include "nn/conv.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/recompute.h"
#include "nn/segments.h"

namespace elinvar {

namespace {

struct ResNetOptions {
  std::vector<int64_t> blocks = {2, 2, 2, 2};                 // per stage; all but the first stage halve the image
  std::vector<int64_t> widths = {64, 128, 256, 512};          // of the 3x3 convolutions, per stage
  bool bottleneck = false;                                    // blocks of 1x1, 3x3, 1x1 with four times the width out
  enum class Stem { imagenet, cifar } stem = Stem::imagenet;  // 7x7/2 and a 3x3/2 max-pool, or 3x3
  // If a block changes shape, its shortcut is a strided 1x1 convolution with batch norm (option B of the paper), or
  // every second pixel with zeros for the new channels, half before and half after (option A).
  enum class Shortcut { projection, pad } shortcut = Shortcut::projection;
  bool zero_init_residual = false;  // the last batch norm of a block starts with weight 0, so the block as identity
};

Conv2d conv(const Scope& scope, int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  const int64_t padding = kernel / 2;
  return {scope,
          in,
          out,
          {kernel, kernel},
          {.stride = {stride, stride}, .padding = {padding, padding}},
          {.bias = false, .weight = init::kaiming_normal()}};
}

struct ResNetBlock {
  std::vector<Conv2d> convs;
  std::vector<BatchNorm2d> norms;
  std::optional<Conv2d> projection;
  std::optional<BatchNorm2d> projection_norm;
  int64_t stride = 1, pad_channels = 0;

  ResNetBlock(const Scope& scope, const ResNetOptions& options, int64_t in, int64_t width, int64_t first_stride)
      : stride(first_stride) {
    const int64_t out = options.bottleneck ? 4 * width : width;
    const auto add = [&](int64_t from, int64_t to, int64_t kernel, int64_t step, bool last) {
      const std::string index = std::to_string(convs.size() + 1);
      convs.push_back(conv(scope / ("conv" + index), from, to, kernel, step));
      norms.emplace_back(scope / ("bn" + index), to, last && options.zero_init_residual ? 0.0 : 1.0);
    };
    if (options.bottleneck) {
      add(in, width, 1, 1, false);
      add(width, width, 3, stride, false);
      add(width, out, 1, 1, true);
    } else {
      add(in, width, 3, stride, false);
      add(width, out, 3, 1, true);
    }
    if (stride == 1 && in == out) return;
    if (options.shortcut == ResNetOptions::Shortcut::pad) {
      pad_channels = out - in;
    } else {
      projection = conv(scope / "downsample" / 0, in, out, 1, stride);
      projection_norm.emplace(scope / "downsample" / 1, out);
    }
  }

  Var shortcut(const Var& x, Context& context) const {
    if (projection) return (*projection_norm)((*projection)(x), context);
    Var y = x;
    for (int d = 1; stride > 1 && d <= 2; ++d) y = slice(y, d, 0, y.dim(d), stride);
    const int64_t before = pad_channels / 2;
    return pad_channels ? pad(y, {0, 0, 0, before}, {0, 0, 0, pad_channels - before}) : y;
  }

  Var operator()(const Var& x, Context& context) const {
    Var y = x;
    for (size_t i = 0; i + 1 < convs.size(); ++i) y = norms[i](convs[i](y), context, {.relu = true});
    return norms.back()(convs.back()(y), context, {.relu = true, .residual = shortcut(x, context)});
  }
};

// Convolutions start from init::kaiming_normal, the last layer from PyTorch's default.
class ResNet : public SegmentedNetwork {
 public:
  ResNet(const ResNetOptions& options, const InputInfo& input, uint64_t seed)
      : pool_(options.stem == ResNetOptions::Stem::imagenet) {
    const Scope scope(parameters, seed);
    stem_ = conv(scope / "conv1", input.sample[2], options.widths[0], pool_ ? 7 : 3, pool_ ? 2 : 1);
    stem_norm_ = BatchNorm2d(scope / "bn1", options.widths[0]);
    add_segment("stem", [this](const Residual& images, Context& c) { return stem(images, c); });
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

  ShardedLogits head(Residual stream, Context&) const override {
    const Var x = stream;
    return {.parts = {head_(reshape(adaptive_avg_pool2d(x, {1, 1}), {x.dim(0), x.dim(3)}))}};
  }

 private:
  Var stem(const Var& images, Context& context) const {
    const Var x = stem_norm_(stem_(images), context, {.relu = true});
    return pool_ ? max_pool2d(x, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}) : x;
  }

  bool pool_;
  Conv2d stem_;
  BatchNorm2d stem_norm_;
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
  const bool small = std::min(input.sample[0], input.sample[1]) < 64;
  const bool cifar = small || options.stem == ResNetOptions::Stem::cifar;
  options.stem = s.choice("stem", cifar ? "cifar" : "imagenet", {"imagenet", "cifar"}) == "cifar"
                     ? ResNetOptions::Stem::cifar
                     : ResNetOptions::Stem::imagenet;
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
