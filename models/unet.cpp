// U-Net (O. Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", MICCAI 2015), with
// padded convolutions, so that outputs have the size of the image, and batch norms: logits for each pixel, (N, H, W,
// classes). Parameters: down.<i>, bottom and up.<i> with conv1, bn1, conv2, bn2; up.<i>.rise; head.
#include <memory>
#include <vector>

#include "autograd/shape.h"
#include "models/kinds.h"
#include "nn/conv.h"
#include "nn/norm.h"
#include "nn/segments.h"

namespace elinvar {
namespace {

struct UNetOptions {
  int64_t channels = 32;  // of the first level; each level below has twice as many
  int64_t levels = 3;     // at which the image is halved
};

// Two 3x3 convolutions.
struct DoubleConv {
  Conv2d conv1, conv2;
  BatchNorm2d bn1, bn2;

  DoubleConv() = default;
  DoubleConv(const Scope& s, int64_t in, int64_t out)
      : conv1(conv(s / "conv1", in, out)),
        conv2(conv(s / "conv2", out, out)),
        bn1(s / "bn1", out),
        bn2(s / "bn2", out) {}
  Var operator()(const Var& x, Context& context) const {
    return bn2(conv2(bn1(conv1(x), context, {.relu = true})), context, {.relu = true});
  }

 private:
  static Conv2d conv(const Scope& s, int64_t in, int64_t out) {
    return {s, in, out, {3, 3}, {.padding = {1, 1}}, {.bias = false, .weight = init::kaiming_normal()}};
  }
};

struct UpLevel {
  ConvTranspose2d rise;
  DoubleConv convs;
};

// The whole path down and up is one segment, since each level on the way up needs the one on the way down.
class UNet final : public SegmentedNetwork {
 public:
  UNet(const UNetOptions& o, const InputInfo& input, uint64_t seed) {
    const Scope scope(parameters, seed);
    int64_t in = input.sample[2], width = o.channels;
    for (int64_t i = 0; i < o.levels; ++i, in = width, width *= 2) down_.emplace_back(scope / "down" / i, in, width);
    bottom_ = DoubleConv(scope / "bottom", in, width);
    for (int64_t i = 0; i < o.levels; ++i, width /= 2) {
      const Scope level = scope / "up" / i;
      ConvTranspose2d rise(level / "rise", width, width / 2, {2, 2}, {.stride = {2, 2}});
      up_.push_back({std::move(rise), DoubleConv(level, width, width / 2)});
    }
    add_segment("u", [this](const Residual& images, Context& c) { return through(images, c); });
    head_ = Conv2d(scope / "head", width, input.classes, {1, 1});
    add_head();
  }

  ShardedLogits head(Residual x, Context&) const override { return {.parts = {head_(x)}}; }

 private:
  Var through(Var x, Context& context) const {
    std::vector<Var> levels;
    for (const DoubleConv& convs : down_) {
      levels.push_back(convs(x, context));
      x = max_pool2d(levels.back(), {});
    }
    x = bottom_(x, context);
    for (const UpLevel& level : up_) {
      x = level.convs(concat({levels.back(), level.rise(x)}, 3), context);
      levels.pop_back();
    }
    return x;
  }

  std::vector<DoubleConv> down_;
  DoubleConv bottom_;
  std::vector<UpLevel> up_;
  Conv2d head_;
};

}  // namespace

std::vector<ModelKind> unet_kinds() {
  return {{"unet", [](Settings& s, const InputInfo& input, uint64_t seed) -> std::unique_ptr<Network> {
             require_images(s, input);
             const UNetOptions options{.channels = s.integer("channels", 32, 1, 4096),
                                       .levels = s.integer("levels", 3, 1, 8)};
             const int64_t step = int64_t{1} << options.levels;
             s.require(input.sample[0] % step == 0 && input.sample[1] % step == 0, "levels",
                       "= {} halves images so often: their sides must be multiples of {}, got {} x {}", options.levels,
                       step, input.sample[0], input.sample[1]);
             return std::make_unique<UNet>(options, input, seed);
           }}};
}

}  // namespace elinvar
