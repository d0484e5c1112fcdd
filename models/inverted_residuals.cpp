// Networks of inverted residual blocks: MobileNet-v2 (Sandler et al., "Inverted residuals and linear bottlenecks") and
// EfficientNet (Tan and Le, "Rethinking model scaling for convolutional neural networks"). A block widens its input by
// a 1x1 convolution, filters each channel separately, and narrows the result; a stride of 1 and equal channels make it
// residual. EfficientNet adds squeeze and excitation, SiLU in place of ReLU6, and stochastic depth. Parameters are
// named as in torchvision:
//
//   MobileNet-v2   features.0 (stem), features.<b>.conv.<i>, features.<last>, classifier.1
//   EfficientNet   features.0 (stem), features.<stage>.<b>.block.<i>, features.<last>, classifier.1
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/pointwise.h"
#include "models/kinds.h"
#include "nn/conv_norm.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/recompute.h"
#include "nn/segments.h"

namespace elinvar {

namespace {

struct InvertedStage {
  int64_t expansion, kernel, channels, blocks, stride;  // the stride is of the first block
};

struct InvertedOptions {
  bool efficient = false;  // an EfficientNet
  int64_t stem = 32, last = 1280;
  std::vector<InvertedStage> stages = {};
  bool small_images = false;  // without the first two strides
  double dropout = 0.2;       // before the last layer
  double depth_drop = 0.0;    // block b of n has b / n of it
  double norm_eps = 1e-5, norm_momentum = 0.1;
};

// Squeeze and excitation (Hu et al., "Squeeze-and-excitation networks"): scales each channel by a number in (0, 1),
// which a perceptron with SiLU computes from the means of all channels.
struct Excitation {
  Conv2d fc1, fc2;

  Excitation(const Scope& scope, int64_t channels, int64_t hidden)
      : fc1(layer(scope / "fc1", channels, hidden)), fc2(layer(scope / "fc2", hidden, channels)) {}
  static Conv2d layer(const Scope& scope, int64_t in, int64_t out) {
    return {scope, in, out, {1, 1}, {}, {.weight = init::kaiming_normal(), .bias_values = init::constant(0.0)}};
  }

  Var operator()(const Var& x) const { return x * sigmoid(fc2(silu(fc1(adaptive_avg_pool2d(x, {1, 1}))))); }
};

struct InvertedBlock {
  std::vector<ConvNorm> activated;  // the wide ones
  std::optional<Excitation> excitation;
  ConvNorm narrow;
  bool efficient, residual;
  StochasticDepth depth;

  InvertedBlock(const Scope& scope, const InvertedOptions& o, const InvertedStage& stage, int64_t in, int64_t stride,
                double drop)
      : efficient(o.efficient), residual(stride == 1 && in == stage.channels), depth{drop} {
    const int64_t wide = in * stage.expansion;
    const auto add = [&](const ConvShape& shape) {
      const Scope unit = scope / static_cast<int64_t>(activated.size());
      activated.emplace_back(unit / 0, unit / 1, shape);
    };
    if (wide != in) add({.in = in, .out = wide});
    add({.in = wide, .out = wide, .kernel = stage.kernel, .stride = stride, .groups = wide});
    auto next = static_cast<int64_t>(activated.size());
    if (efficient) excitation.emplace(scope / next++, wide, std::max<int64_t>(1, in / 4));
    const Scope of_conv = efficient ? scope / next / 0 : scope / next;
    narrow = ConvNorm(of_conv, efficient ? scope / next / 1 : scope / (next + 1), {.in = wide, .out = stage.channels});
    for (ConvNorm& unit : activated) set_norm(unit, o);
    set_norm(narrow, o);
  }
  static void set_norm(ConvNorm& unit, const InvertedOptions& o) {
    unit.norm.eps = o.norm_eps;
    unit.norm.momentum = o.norm_momentum;
  }

  Var operator()(const Var& x, Context& context) const {
    Var y = x;
    for (const ConvNorm& unit : activated) y = efficient ? silu(unit(y, context)) : relu6(unit(y, context));
    if (excitation) y = (*excitation)(y);
    if (!residual) return narrow(y, context);
    if (depth.p == 0.0) return narrow(y, context, {.residual = x});
    return depth(narrow(y, context), context) + x;
  }
};

// Convolutions start from init::kaiming_normal, the last layer from N(0, 0.01^2) in MobileNet-v2, in EfficientNet
// uniformly within 1 / sqrt(classes); biases are zero.
class InvertedResiduals : public SegmentedNetwork {
 public:
  InvertedResiduals(const InvertedOptions& o, const InputInfo& input, uint64_t seed)
      : efficient_(o.efficient), dropout_{o.dropout} {
    const Scope scope(parameters, seed), features = scope / "features";
    int strides_left_out = o.small_images ? 2 : 0;
    const auto stride_of = [&](int64_t stride) { return stride == 2 && strides_left_out-- > 0 ? 1 : stride; };
    const auto unit = [&](int64_t at, const ConvShape& shape) {
      ConvNorm made(features / at / 0, features / at / 1, shape);
      InvertedBlock::set_norm(made, o);
      return made;
    };
    stem_ = unit(0, {.in = input.sample[2], .out = o.stem, .kernel = 3, .stride = stride_of(2)});
    add_segment("features.0", [this](const Residual& x, Context& c) { return activated(stem_, x, c); });
    int64_t channels = o.stem, place = 1, all = 0;
    for (const InvertedStage& stage : o.stages) all += stage.blocks;
    for (const InvertedStage& stage : o.stages) {
      for (int64_t b = 0; b < stage.blocks; ++b) {
        const std::string name = efficient_ ? fmt::format("{}.{}", place, b) : std::to_string(place++);
        const Scope block = features / name / (efficient_ ? "block" : "conv");
        const double drop = o.depth_drop * static_cast<double>(blocks_.size()) / static_cast<double>(all);
        blocks_.emplace_back(block, o, stage, channels, b == 0 ? stride_of(stage.stride) : 1, drop);
        add_segment("features." + name, [this, i = blocks_.size() - 1](const Residual& x, Context& c) {
          return run_block<InvertedBlock, Var>(blocks_[i], x, c);
        });
        channels = stage.channels;
      }
      if (efficient_) ++place;
    }
    last_ = unit(place, {.in = channels, .out = o.last});
    add_segment(fmt::format("features.{}", place),
                [this](const Residual& x, Context& c) { return activated(last_, x, c); });
    const double bound = 1.0 / std::sqrt(static_cast<double>(input.classes));
    head_ =
        Linear(scope / "classifier" / 1, o.last, input.classes,
               {.weight = efficient_ ? init::uniform(bound) : init::normal(0.01), .bias_values = init::constant(0.0)});
    add_head();
  }

  ShardedLogits head(Residual x, Context& context) const override {
    return {.parts = {head_(dropout_(global_avg_pool(x), context))}};
  }

 private:
  Var activated(const ConvNorm& unit, const Var& x, Context& context) const {
    const Var y = unit(x, context);
    return efficient_ ? silu(y) : relu6(y);
  }

  bool efficient_;
  Dropout dropout_;
  ConvNorm stem_, last_;
  std::vector<InvertedBlock> blocks_;
  Linear head_;
};

// Returns the multiple of 8 next to n, rounded up if it would be less than nine tenths of n.
int64_t multiple_of_8(double n) {
  const int64_t nearest = std::max<int64_t>(8, static_cast<int64_t>(n + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * n ? nearest + 8 : nearest;
}

// The numbers of channels and of blocks of the kind, which `width` and `depth` multiply.
std::unique_ptr<Network> scaled(InvertedOptions o, double width, double depth, Settings& s, const InputInfo& input,
                                uint64_t seed) {
  require_images(s, input);
  width = s.real("width", width, 0.01, 100.0);
  depth = s.real("depth", depth, 0.01, 100.0);
  o.stem = multiple_of_8(static_cast<double>(o.stem) * width);
  for (InvertedStage& stage : o.stages) {
    stage.channels = multiple_of_8(static_cast<double>(stage.channels) * width);
    stage.blocks = static_cast<int64_t>(std::ceil(static_cast<double>(stage.blocks) * depth));
  }
  o.last = o.efficient ? 4 * o.stages.back().channels : multiple_of_8(1280 * std::max(1.0, width));
  o.small_images = cifar_stem(s, is_small(input));
  o.dropout = s.real("dropout", o.dropout, 0.0, 0.99);
  if (o.efficient) o.depth_drop = s.real("stochastic_depth", 0.2, 0.0, 0.99);
  return std::make_unique<InvertedResiduals>(o, input, seed);
}

}  // namespace

std::vector<ModelKind> inverted_residual_kinds() {
  std::vector<ModelKind> kinds;
  const auto add = [&](const std::string& name, const InvertedOptions& o, double width, double depth) {
    kinds.push_back({name, [=](Settings& s, const InputInfo& input, uint64_t seed) {
                       return scaled(o, width, depth, s, input, seed);
                     }});
  };
  add("mobilenet_v2",
      {.stages = {{1, 3, 16, 1, 1},
                  {6, 3, 24, 2, 2},
                  {6, 3, 32, 3, 2},
                  {6, 3, 64, 4, 2},
                  {6, 3, 96, 3, 1},
                  {6, 3, 160, 3, 2},
                  {6, 3, 320, 1, 1}}},
      1.0, 1.0);
  const std::vector<InvertedStage> stages = {{1, 3, 16, 1, 1},  {6, 3, 24, 2, 2},  {6, 5, 40, 2, 2}, {6, 3, 80, 3, 2},
                                             {6, 5, 112, 3, 1}, {6, 5, 192, 4, 2}, {6, 3, 320, 1, 1}};
  const auto efficientnet = [&](int number, double width, double depth, double dropout) {
    const bool large = number >= 5;
    add(fmt::format("efficientnet_b{}", number),
        {.efficient = true,
         .stages = stages,
         .dropout = dropout,
         .norm_eps = large ? 1e-3 : 1e-5,
         .norm_momentum = large ? 0.01 : 0.1},
        width, depth);
  };
  efficientnet(0, 1.0, 1.0, 0.2);
  efficientnet(1, 1.0, 1.1, 0.2);
  efficientnet(2, 1.1, 1.2, 0.3);
  efficientnet(3, 1.2, 1.4, 0.3);
  efficientnet(4, 1.4, 1.8, 0.4);
  efficientnet(5, 1.6, 2.2, 0.4);
  efficientnet(6, 1.8, 2.6, 0.5);
  efficientnet(7, 2.0, 3.1, 0.5);
  return kinds;
}

}  // namespace elinvar
