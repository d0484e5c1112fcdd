// ShuffleNet-v2 (Ma et al., "ShuffleNet V2: practical guidelines for efficient CNN architecture design"): a block
// filters half of the channels, and then the channels of both halves alternate, so that the next block mixes them.
// Parameters are named as in torchvision: conv1, stage2.0.branch1, stage2.0.branch2, .., conv5, fc.
#include <memory>
#include <vector>

#include "autograd/shape.h"
#include "models/kinds.h"
#include "nn/conv_norm.h"
#include "nn/linear.h"
#include "nn/recompute.h"
#include "nn/segments.h"

namespace elinvar {

namespace {

struct ShuffleNetOptions {
  std::vector<int64_t> blocks = {4, 8, 4};                // per stage; the first one of each halves the image
  std::vector<int64_t> widths = {24, 48, 96, 192, 1024};  // of conv1, of the stages, of conv5
  bool small_images = false;                              // conv1 without its stride, and no max-pool
};

// Channels of a and b (.., C) in turn: a0, b0, a1, b1, ..
Var alternating(const Var& a, const Var& b) {
  Shape single = a.shape(), both = a.shape();
  single.push_back(1);
  both[both.ndim() - 1] *= 2;
  return reshape(concat({reshape(a, single), reshape(b, single)}, -1), both);
}

// The units of a branch, whose convolutions and norms are numbered with the ReLUs between them.
class ShuffleBranch {
 public:
  void add(const Scope& scope, const ConvShape& shape, bool relu) {
    units_.emplace_back(ConvNorm(scope / next_, scope / (next_ + 1), shape, init::fan_in_uniform()), relu);
    next_ += relu ? 3 : 2;
  }
  Var operator()(Var x, Context& context) const {
    for (const auto& [unit, relu] : units_) x = unit(x, context, {.relu = relu});
    return x;
  }

 private:
  std::vector<std::pair<ConvNorm, bool>> units_;
  int64_t next_ = 0;
};

struct ShuffleBlock {
  ShuffleBranch branch1, branch2;
  bool halves;  // the image; otherwise the first half of the channels passes unchanged

  ShuffleBlock(const Scope& scope, int64_t in, int64_t out, bool halves_image) : halves(halves_image) {
    const int64_t half = out / 2, stride = halves ? 2 : 1;
    const Scope first = scope / "branch1", second = scope / "branch2";
    if (halves) {
      branch1.add(first, {.in = in, .out = in, .kernel = 3, .stride = stride, .groups = in}, false);
      branch1.add(first, {.in = in, .out = half}, true);
    }
    branch2.add(second, {.in = halves ? in : half, .out = half}, true);
    branch2.add(second, {.in = half, .out = half, .kernel = 3, .stride = stride, .groups = half}, false);
    branch2.add(second, {.in = half, .out = half}, true);
  }

  Var operator()(const Var& x, Context& context) const {
    if (halves) {
      const Var first = branch1(x, context);
      return alternating(first, branch2(x, context));
    }
    const int64_t half = x.dim(-1) / 2;
    const std::vector<Var> parts = split(x, {half, half}, -1);
    return alternating(parts[0], branch2(parts[1], context));
  }
};

// All layers start from PyTorch's default.
class ShuffleNet : public SegmentedNetwork {
 public:
  ShuffleNet(const ShuffleNetOptions& o, const InputInfo& input, uint64_t seed) : pool_(!o.small_images) {
    const Scope scope(parameters, seed);
    const auto unit = [](const Scope& at, const ConvShape& shape) {
      return ConvNorm(at / 0, at / 1, shape, init::fan_in_uniform());
    };
    int64_t channels = o.widths.front();
    conv1_ = unit(scope / "conv1", {.in = input.sample[2], .out = channels, .kernel = 3, .stride = pool_ ? 2 : 1});
    add_segment("conv1", [this](const Residual& images, Context& c) { return stem(images, c); });
    for (size_t stage = 0; stage < o.blocks.size(); ++stage) {
      const std::string name = fmt::format("stage{}", stage + 2);
      const int64_t out = o.widths[stage + 1];
      for (int64_t b = 0; b < o.blocks[stage]; ++b, channels = out) {
        blocks_.emplace_back(scope / name / b, channels, out, b == 0);
        add_segment(fmt::format("{}.{}", name, b), [this, i = blocks_.size() - 1](const Residual& x, Context& c) {
          return run_block<ShuffleBlock, Var>(blocks_[i], x, c);
        });
      }
    }
    conv5_ = unit(scope / "conv5", {.in = channels, .out = o.widths.back()});
    add_segment("conv5", [this](const Residual& x, Context& c) { return conv5_(x, c, {.relu = true}); });
    head_ = Linear(scope / "fc", o.widths.back(), input.classes);
    add_head();
  }

  ShardedLogits head(Residual x, Context&) const override { return {.parts = {head_(global_avg_pool(x))}}; }

 private:
  Var stem(const Var& images, Context& context) const {
    const Var x = conv1_(images, context, {.relu = true});
    return pool_ ? max_pool2d(x, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}) : x;
  }

  bool pool_;
  ConvNorm conv1_, conv5_;
  std::vector<ShuffleBlock> blocks_;
  Linear head_;
};

std::unique_ptr<Network> configured_shufflenet(ShuffleNetOptions o, Settings& s, const InputInfo& input,
                                               uint64_t seed) {
  require_images(s, input);
  o.small_images = cifar_stem(s, is_small(input));
  return std::make_unique<ShuffleNet>(o, input, seed);
}

}  // namespace

std::vector<ModelKind> shufflenet_kinds() {
  std::vector<ModelKind> kinds;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& widths) {
    kinds.push_back({name, [widths](Settings& s, const InputInfo& input, uint64_t seed) {
                       return configured_shufflenet({.widths = widths}, s, input, seed);
                     }});
  };
  add("shufflenet_v2_x0_5", {24, 48, 96, 192, 1024});
  add("shufflenet_v2_x1_0", {24, 116, 232, 464, 1024});
  add("shufflenet_v2_x1_5", {24, 176, 352, 704, 1024});
  add("shufflenet_v2_x2_0", {24, 244, 488, 976, 2048});
  return kinds;
}

}  // namespace elinvar
