// VGG, with or without batch norm (Simonyan and Zisserman, "Very deep convolutional networks"). Parameters are named as
// in torchvision: features.<i> counts convolutions, batch norms, ReLUs and poolings; classifier.<i> counts linear
// layers, ReLUs and dropouts. Images being (H, W, C), the first linear layer reads features in the order (h, w, c).
#include <algorithm>
#include <memory>

#include "autograd/pointwise.h"
#include "autograd/shape.h"
#include "models/kinds.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/recompute.h"
#include "nn/segments.h"

namespace elinvar {

namespace {

struct VggOptions {
  int depth = 16;          // 11, 13, 16 or 19
  bool batch_norm = true;  // after each convolution
  bool conv_bias = false;  // torchvision has a bias, which batch norm makes useless
  // imagenet: average over 7x7 cells, then 4096, 4096 and the classes; cifar: one linear layer.
  enum class Head { imagenet, cifar } head = Head::imagenet;
  double dropout = 0.5;  // of the imagenet head
};

// Convolutions in each of the five stages; the image is halved between stages.
std::vector<int64_t> stages(int depth) {
  switch (depth) {
    case 11:
      return {1, 1, 2, 2, 2};
    case 13:
      return {2, 2, 2, 2, 2};
    case 16:
      return {2, 2, 3, 3, 3};
    case 19:
      return {2, 2, 4, 4, 4};
    default:
      throw UsageError(fmt::format("[vgg] depth 11, 13, 16 or 19 expected, got {}", depth));
  }
}

// Convolutions start from init::kaiming_normal, linear layers from N(0, 0.01^2) with zero bias.
class Vgg : public SegmentedNetwork {
 public:
  Vgg(const VggOptions& options, const InputInfo& input, uint64_t seed)
      : imagenet_(options.head == VggOptions::Head::imagenet), dropout_{options.dropout} {
    const Scope scope(parameters, seed), features = scope / "features", classifier = scope / "classifier";
    constexpr int64_t kWidths[] = {64, 128, 256, 512, 512};
    int64_t index = 0, channels = input.sample[2], pixels = input.sample[0] * input.sample[1];
    Extent2 image{input.sample[0], input.sample[1]};
    for (const int64_t count : stages(options.depth)) {
      const int64_t width = kWidths[stages_.size()];
      Stage& stage = stages_.emplace_back();
      for (int64_t i = 0; i < count; ++i, index += options.batch_norm ? 3 : 2) {  // convolution, batch norm, ReLU
        stage.convs.emplace_back(features / index, channels, width, Extent2{3, 3}, Conv2dOptions{.padding = {1, 1}},
                                 Conv2dInit{.bias = options.conv_bias, .weight = init::kaiming_normal()});
        if (options.batch_norm) stage.norms.emplace_back(features / (index + 1), width);
        channels = width;
      }
      ++index;  // the pooling
      add_segment(fmt::format("stage{}", stages_.size()),
                  [this, i = stages_.size() - 1](const Residual& x, Context& c) {
                    return run_block<Stage, Var>(stages_[i], x, c);
                  });
      image = {image.h / 2, image.w / 2};
      pixels = image.h * image.w;
    }
    check(pixels > 0, "[vgg] images of at least 32 x 32 pixels expected, got {} x {}", input.sample[0],
          input.sample[1]);
    add_segment("flatten", [this](const Residual& x, Context&) { return flattened(x); });
    const auto linear_layer = [&](int64_t at, int64_t in, int64_t out) {
      linears_.emplace_back(classifier / at, in, out,
                            LinearInit{.weight = init::normal(0.01), .bias_values = init::constant(0.0)});
    };
    const auto hidden_layer = [&](int64_t at, int64_t in) {
      linear_layer(at, in, 4096);
      add_segment(fmt::format("classifier.{}", at), [this, i = linears_.size() - 1](const Residual& x, Context& c) {
        return dropout_(relu(linears_[i](x)), c);
      });
    };
    if (imagenet_) {
      hidden_layer(0, 49 * channels);
      hidden_layer(3, 4096);
      linear_layer(6, 4096, input.classes);
    } else {
      linear_layer(0, pixels * channels, input.classes);
    }
    add_head();
  }

  ShardedLogits head(Residual x, Context&) const override { return {.parts = {linears_.back()(x)}}; }

 private:
  Var flattened(const Var& x) const { return reshape(imagenet_ ? adaptive_avg_pool2d(x, {7, 7}) : x, {x.dim(0), -1}); }
  struct Stage {
    std::vector<Conv2d> convs;
    std::vector<BatchNorm2d> norms;  // empty without batch norm

    Var operator()(Var x, Context& context) const {
      for (size_t i = 0; i < convs.size(); ++i)
        x = norms.empty() ? relu(convs[i](x)) : norms[i](convs[i](x), context, {.relu = true});
      return max_pool2d(x, {.kernel = {2, 2}, .stride = {2, 2}});
    }
  };
  bool imagenet_;
  Dropout dropout_;
  std::vector<Stage> stages_;
  std::vector<Linear> linears_;
};

}  // namespace

std::vector<ModelKind> vgg_kinds() {
  std::vector<ModelKind> kinds;
  for (const int depth : {11, 13, 16, 19}) {
    kinds.push_back({"vgg" + std::to_string(depth), [depth](Settings& s, const InputInfo& input, uint64_t seed) {
                       require_images(s, input);
                       const int64_t side = std::min(input.sample[0], input.sample[1]);
                       s.require(side >= 32, "kind", "= 'vgg{}' takes images of at least 32 x 32 pixels, got {} x {}",
                                 depth, input.sample[0], input.sample[1]);
                       const bool small = side < 64;
                       VggOptions options{.depth = depth};
                       // Records of older runs lack this setting, so a network has it only if its configuration does.
                       if (s.has("batch_norm")) options.batch_norm = s.boolean("batch_norm", true);
                       options.conv_bias = s.boolean("conv_bias", !options.batch_norm);
                       if (s.choice("head", small ? "cifar" : "imagenet", {"imagenet", "cifar"}) == "cifar")
                         options.head = VggOptions::Head::cifar;
                       else options.dropout = s.real("dropout", 0.5, 0.0, 0.99);
                       return std::make_unique<Vgg>(options, input, seed);
                     }});
  }
  return kinds;
}

}  // namespace elinvar
