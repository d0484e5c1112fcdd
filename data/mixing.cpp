#include "data/mixing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

constexpr double kLeast = 0.05, kMost = 4;

Random4 words_of(int64_t index, const Draw& draw, uint32_t block) {
  return philox(draw.seed ^ key_of("data.mixing"), static_cast<uint32_t>(draw.epoch), static_cast<uint32_t>(index),
                static_cast<uint32_t>(static_cast<uint64_t>(index) >> 32), block);
}

// Returns x^p for x in (0, 1] and p in [0, 20].
double power(double x, double p) {
  double whole = std::floor(p), rest = p - whole, result = 1;
  for (double square = x; whole > 0; square *= square) {
    const double half = std::floor(whole / 2);
    if (whole != 2 * half) result *= square;
    whole = half;
  }
  double root = x;
  for (int bit = 0; bit < 26; ++bit) {
    root = std::sqrt(root);
    rest *= 2;
    if (rest >= 1) {
      result *= root;
      rest -= 1;
    }
  }
  return result;
}

double beta(double a, int64_t index, const Draw& draw) {
  constexpr uint32_t kTries = 2000;
  const auto uniform = [](uint32_t word) { return (static_cast<double>(word >> 8) + 1.0) * 0x1p-24; };
  double l = 0.5;
  for (uint32_t k = 0; k < kTries; ++k) {
    const Random4 words = words_of(index, draw, 1 + k);
    const double u = power(uniform(words.v[0]), 1 / a), v = power(uniform(words.v[1]), 1 / a);
    if (u + v > 1) continue;
    l = u / (u + v);
    break;
  }
  return std::floor(l * 0x1p16 + 0.5) * 0x1p-16;
}

// The extents of an image (height, width, channels), which both kinds of mixing change.
struct Sides {
  int64_t height, width, channels;
  int64_t numel() const { return height * width * channels; }
};

float mix_up(double l, const Sides& sides, const float* y, float* x) {
  const float own = static_cast<float>(l), rest = static_cast<float>(1 - l);
  for (int64_t i = 0; i < sides.numel(); ++i) x[i] = own * x[i] + rest * y[i];
  return own;
}

float cut_and_mix(double l, const Random4& words, const Sides& sides, const float* y, float* x) {
  const auto scaled = [&](int64_t side) {
    return static_cast<int64_t>(std::floor(static_cast<double>(side) * std::sqrt(1 - l)));
  };
  const int64_t h = scaled(sides.height), w = scaled(sides.width);
  const int64_t top = random_below(words.v[1], sides.height) - h / 2,
                left = random_below(words.v[2], sides.width) - w / 2;
  const int64_t first_row = std::max<int64_t>(top, 0), last_row = std::min(top + h, sides.height);
  const int64_t first = std::max<int64_t>(left, 0), last = std::min(left + w, sides.width);
  for (int64_t row = first_row; row < last_row; ++row) {
    const int64_t begin = (row * sides.width + first) * sides.channels;
    std::copy_n(y + begin, (last - first) * sides.channels, x + begin);
  }
  const auto taken = static_cast<double>((last_row - first_row) * (last - first));
  return static_cast<float>(1 - taken / static_cast<double>(sides.height * sides.width));
}

}  // namespace

void check_mixing(const Mixing& mixing, const Dataset& dataset) {
  const bool images = dataset.input_dtype() == DType::f32 && dataset.input_shape().ndim() == 3;
  const Field target = dataset.format().target;
  const bool labels = target.dtype == DType::i64 && target.shape.ndim() == 0;
  const auto check_one = [&](const char* key, double a) {
    check_setting(a == 0 || (a >= kLeast && a <= kMost), key, "must be 0 or from {} to {}, got {}", kLeast, kMost, a);
    check_setting(a == 0 || images, key, "mixes images; the samples of these data are of shape {}",
                  to_string(dataset.input_shape()));
    check_setting(a == 0 || labels, key, "mixes images with one label each; targets of these data are {} of shape {}",
                  name_of(target.dtype), to_string(target.shape));
  };
  check_one("data.mixup", mixing.mixup);
  check_one("data.cutmix", mixing.cutmix);
}

MixedTargets mix(const Mixing& mixing, std::span<const int64_t> indices, const Draw& draw, const Tensor& labels,
                 Tensor& images) {
  const auto n = static_cast<int64_t>(indices.size());
  const Sides sides{images.dim(1), images.dim(2), images.dim(3)};
  invariant(n >= 2 && images.dim(0) == n && labels.numel() == n, "as many images and labels as indices, two or more");
  MixedTargets mixed{Tensor::empty({n}, DType::i64), Tensor::empty({n})};
  auto* x = images.data<float>();
  const std::vector<float> first(x, x + sides.numel());  // a copy of the first image, unmixed: the last one's partner
  for (int64_t i = 0; i < n; ++i, x += sides.numel()) {
    const float* y = i + 1 < n ? x + sides.numel() : first.data();
    const int64_t index = indices[static_cast<size_t>(i)];
    const Random4 words = words_of(index, draw, 0);
    const bool cuts = mixing.cutmix > 0 && (mixing.mixup == 0 || (words.v[0] & 1) != 0);
    const double l = beta(cuts ? mixing.cutmix : mixing.mixup, index, draw);
    mixed.share.data<float>()[i] = cuts ? cut_and_mix(l, words, sides, y, x) : mix_up(l, sides, y, x);
    mixed.other.data<int64_t>()[i] = labels.data<int64_t>()[(i + 1) % n];
  }
  return mixed;
}

}  // namespace elinvar
