// YOLOv3 (J. Redmon, A. Farhadi, "YOLOv3: An Incremental Improvement", 2018) and its small version, YOLOv3-tiny, for
// the task "detection". A network finds boxes on scales of 32, 16 and (not the small one) 8 pixels: the features of the
// coarsest scale get fewer channels and twice the size, by the nearest pixel, and are joined with those of the next
// one. The output is (N, rows, numbers), scale after scale from the coarsest on, as nn/anchors.h describes.
//
// Convolutions are followed by a batch norm and a leaky ReLU of slope 0.1, and named <layer>.conv and <layer>.norm:
//   yolov3       stem, stages.<s>.down, stages.<s>.<b>.conv1 and .conv2: Darknet-53
//                scales.<s>.narrow (from the second scale on), scales.<s>.convs.<i>, scales.<s>.last
//   yolov3_tiny  convs.<i>; then scales.<s>.narrow, scales.0.convs.0 and scales.<s>.last
//   both         scales.<s>.boxes, a convolution with a bias alone
#include <cfloat>
#include <memory>
#include <vector>

#include "autograd/pointwise.h"
#include "autograd/shape.h"
#include "models/kinds.h"
#include "nn/anchors.h"
#include "nn/conv_norm.h"
#include "nn/recompute.h"
#include "nn/segments.h"

namespace elinvar {
namespace {

// A sequence of convolutions.
struct LeakyConvs {
  std::vector<ConvNorm> convs;

  void add(const Scope& scope, const ConvShape& shape) { convs.emplace_back(scope / "conv", scope / "norm", shape); }
  Var operator()(const Var& x, Context& context) const {
    Var y = x;
    for (const ConvNorm& conv : convs) y = leaky_relu(conv(y, context), 0.1);
    return y;
  }
};

struct DarknetBlock {
  LeakyConvs convs;

  DarknetBlock(const Scope& scope, int64_t channels) {
    convs.add(scope / "conv1", {.in = channels, .out = channels / 2});
    convs.add(scope / "conv2", {.in = channels / 2, .out = channels, .kernel = 3});
  }
  Var operator()(const Var& x, Context& context) const { return x + convs(x, context); }
};

// Convolutions start from init::kaiming_normal, those of boxes from N(0, 0.01^2). Their biases are zero, but for the
// objectness: it begins at a probability of 0.01, since few rows have a box (T.-Y. Lin et al., "Focal Loss for Dense
// Object Detection", ICCV 2017).
Conv2d boxes_layer(const Scope& scope, int64_t in, int64_t numbers) {
  const auto biases = [numbers](Tensor& values, uint64_t) {
    for (int64_t i = 0; i < values.numel(); ++i)
      values.data<float>()[i] = i % numbers == kBoxLogits - 1 ? -4.595f : 0.0f;
  };
  return {scope, in, kAnchorsOfScale * numbers, {1, 1}, {}, {.weight = init::normal(0.01), .bias_values = biases}};
}

// The layers of one scale.
struct BoxScale {
  LeakyConvs narrow, convs, last;  // `narrow` reads the scale before, and `convs` that and the features of this one
  Conv2d boxes;

  // (N, H, W, kAnchorsOfScale * numbers) -> (N, rows, numbers)
  Var rows(const Var& x, Context& context) const {
    const Var y = boxes(last(x, context));
    return reshape(y, {y.dim(0), -1, y.dim(3) / kAnchorsOfScale});
  }
};

class Yolo : public SegmentedNetwork {
 public:
  ShardedLogits head(Residual x, Context&) const override { return {.parts = {x}}; }

 protected:
  // Returns the rows of all scales for their features, the finest first. Every scale needs those of the coarser ones,
  // and of the finest features, so all of this is one segment together with the layers between features.
  Var pyramid(std::vector<Var> features, Context& context) const {
    std::vector<Var> rows;
    Var x;
    for (const BoxScale& scale : scales_) {
      const Var& own = features.back();
      if (!rows.empty()) {
        const Var finer = upsample_nearest(scale.narrow(x, context), {own.dim(1), own.dim(2)});
        x = concat({finer, own}, 3);
      } else {
        x = own;
      }
      if (!scale.convs.convs.empty()) x = run_block(scale.convs, x, context);
      rows.push_back(scale.rows(x, context));
      features.pop_back();
    }
    return concat(rows, 1);
  }

  std::vector<BoxScale> scales_;  // the coarsest first
};

struct YoloV3Options {
  int64_t channels = 32;                          // of the first convolution
  std::vector<int64_t> blocks = {1, 2, 8, 8, 4};  // of each stage
};

class YoloV3 final : public Yolo {
 public:
  YoloV3(const YoloV3Options& o, const InputInfo& input, uint64_t seed) {
    const Scope scope(parameters, seed);
    stem_.add(scope / "stem", {.in = input.sample[2], .out = o.channels, .kernel = 3});
    add_segment("stem", [this](const Residual& x, Context& c) { return stem_(x, c); });
    int64_t width = o.channels;
    for (size_t s = 0; s < o.blocks.size(); ++s, width *= 2) {
      const Scope stage = scope / "stages" / static_cast<int64_t>(s);
      stages_.emplace_back().down.add(stage / "down", {.in = width, .out = 2 * width, .kernel = 3, .stride = 2});
      if (s <= kFinest)
        add_segment(fmt::format("stages.{}.down", s),
                    [this, s](const Residual& x, Context& c) { return stages_[s].down(x, c); });
      for (int64_t b = 0; b < o.blocks[s]; ++b) {
        stages_[s].blocks.emplace_back(stage / b, 2 * width);
        if (s <= kFinest)
          add_segment(fmt::format("stages.{}.{}", s, b), [this, s, b](const Residual& x, Context& c) {
            return run_block<DarknetBlock, Var>(stages_[s].blocks[static_cast<size_t>(b)], x, c);
          });
      }
    }
    for (int64_t s = 0, own = width; s < 3; ++s, own /= 2) {
      const Scope of_scale = scope / "scales" / s;
      BoxScale made;
      if (s > 0) made.narrow.add(of_scale / "narrow", {.in = own, .out = own / 2});
      const int64_t joined = s > 0 ? own / 2 + own : own;
      for (int64_t i = 0; i < 5; ++i)
        made.convs.add(of_scale / "convs" / i, {.in = i == 0       ? joined
                                                      : i % 2 == 0 ? own
                                                                   : own / 2,
                                                .out = i % 2 == 0 ? own / 2 : own,
                                                .kernel = i % 2 == 0 ? 1 : 3});
      made.last.add(of_scale / "last", {.in = own / 2, .out = own, .kernel = 3});
      made.boxes = boxes_layer(of_scale / "boxes", own, input.classes);
      scales_.push_back(std::move(made));
    }
    add_segment("pyramid", [this](const Residual& x, Context& c) { return from_finest(x, c); });
    add_head();
  }

 private:
  static constexpr size_t kFinest = 2;  // the stage whose features the finest scale needs

  struct Stage {
    LeakyConvs down;
    std::vector<DarknetBlock> blocks;
  };

  Var from_finest(const Var& x, Context& context) const {
    std::vector<Var> features = {x};
    for (size_t s = kFinest + 1; s < stages_.size(); ++s) {
      Var y = stages_[s].down(features.back(), context);
      for (const DarknetBlock& block : stages_[s].blocks) y = run_block(block, y, context);
      features.push_back(y);
    }
    return pyramid(std::move(features), context);
  }

  LeakyConvs stem_;
  std::vector<Stage> stages_;
};

// Convolutions with max-pools between them. The last pool has stride 1, and sees nothing beyond the right and lower
// border.
class YoloV3Tiny final : public Yolo {
 public:
  YoloV3Tiny(int64_t channels, const InputInfo& input, uint64_t seed) {
    const Scope scope(parameters, seed);
    int64_t in = input.sample[2], width = channels;
    for (size_t i = 0; i < 7; ++i, in = width, width *= 2) {
      convs_.emplace_back().add(scope / "convs" / static_cast<int64_t>(i), {.in = in, .out = width, .kernel = 3});
      if (i <= kFinest)
        add_segment(fmt::format("convs.{}", i), [this, i](const Residual& x, Context& c) {
          return convs_[i](i > 0 ? max_pool2d(x, {}) : Var(x), c);
        });
    }
    for (int64_t s = 0, own = in / 2; s < 2; ++s, own /= 2) {  // channels of `last`
      const Scope of_scale = scope / "scales" / s;
      BoxScale made;
      if (s == 0) made.convs.add(of_scale / "convs" / 0, {.in = in, .out = own / 2});
      else made.narrow.add(of_scale / "narrow", {.in = own, .out = own / 2});
      made.last.add(of_scale / "last", {.in = s == 0 ? own / 2 : own / 2 + own, .out = own, .kernel = 3});
      made.boxes = boxes_layer(of_scale / "boxes", own, input.classes);
      scales_.push_back(std::move(made));
    }
    add_segment("pyramid", [this](const Residual& x, Context& c) { return from_finest(x, c); });
    add_head();
  }

 private:
  static constexpr size_t kFinest = 4;  // the convolution whose features the finer scale needs

  Var from_finest(const Var& x, Context& context) const {
    Var y = convs_[5](max_pool2d(x, {}), context);
    y = max_pool2d(pad(y, {0, 0, 0, 0}, {0, 1, 1, 0}, -FLT_MAX), {.stride = {1, 1}});
    return pyramid({x, convs_[6](y, context)}, context);
  }

  std::vector<LeakyConvs> convs_;
};

void require_detection(const Settings& settings, const InputInfo& input) {
  require_images(settings, input);
  settings.require(input.sample[0] == input.sample[1] && input.sample[0] % 32 == 0, "kind",
                   "= '{}' takes square images whose side is a multiple of 32, got {} x {}", settings.kind(),
                   input.sample[0], input.sample[1]);
  settings.require(
      input.classes > kBoxLogits, "kind",
      "= '{}' has {} numbers and at least one class for each box, but the task asks for {} outputs: use it "
      "with task.kind = 'detection'",
      settings.kind(), kBoxLogits, input.classes);
}

}  // namespace

std::vector<ModelKind> yolov3_kinds() {
  const auto full = [](Settings& s, const InputInfo& input, uint64_t seed) -> std::unique_ptr<Network> {
    require_detection(s, input);
    const YoloV3Options usual, options{.channels = s.integer("channels", usual.channels, 1, 4096),
                                       .blocks = s.integers("blocks", usual.blocks, 0, kMostBlocks)};
    s.require(options.blocks.size() == usual.blocks.size(), "blocks", "needs a number for each of {} stages, got {}",
              usual.blocks.size(), options.blocks.size());
    return std::make_unique<YoloV3>(options, input, seed);
  };
  const auto tiny = [](Settings& s, const InputInfo& input, uint64_t seed) -> std::unique_ptr<Network> {
    require_detection(s, input);
    return std::make_unique<YoloV3Tiny>(s.integer("channels", 16, 1, 4096), input, seed);
  };
  return {{"yolov3", full}, {"yolov3_tiny", tiny}};
}

}  // namespace elinvar
