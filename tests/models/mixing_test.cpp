// Mixup and cutmix: the images, their targets, and the loss of mixtures.
#include "data/mixing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/loss.h"
#include "data/loader.h"
#include "models/build.h"
#include "nn/micro_batch.h"
#include "tensor/base/check.h"
#include "tests/support/bits.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

constexpr int64_t kImageSide = 8, kNumel = kImageSide * kImageSide * 3;

Tensor noise(int64_t n) {
  Tensor images = Tensor::empty({n, kImageSide, kImageSide, 3});
  for (int64_t i = 0; i < images.numel(); ++i)
    images.data<float>()[i] = uniform01(philox(5, static_cast<uint32_t>(i), 0, 0, 0).v[0]);
  return images;
}

Tensor labels_of(int64_t n) {
  Tensor labels = Tensor::empty({n}, DType::i64);
  for (int64_t i = 0; i < n; ++i) labels.data<int64_t>()[i] = 10 * i;
  return labels;
}

std::vector<int64_t> indices_of(int64_t n, int64_t first = 100) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < n; ++i) indices.push_back(first + i);
  return indices;
}

constexpr Draw kDraw{.seed = 4, .epoch = 1, .augment = true};

TEST(Mixup, EachImageIsMixedWithTheNextAsItWas) {
  const Tensor before = noise(5);
  Tensor images = before.clone();
  const MixedTargets mixed = mix({.mixup = 1}, indices_of(5), kDraw, labels_of(5), images);
  for (int64_t i = 0; i < 5; ++i) {
    const float share = mixed.share.data<float>()[i], rest = 1 - share;
    EXPECT_TRUE(share > 0 && share < 1);
    EXPECT_EQ(share * 65536, std::floor(share * 65536));
    EXPECT_EQ(mixed.other.data<int64_t>()[i], 10 * ((i + 1) % 5));
    const float *x = before.data<float>() + i * kNumel, *y = before.data<float>() + (i + 1) % 5 * kNumel;
    for (int64_t k = 0; k < kNumel; ++k) {
      const float own = share * x[k], others = rest * y[k];
      ASSERT_EQ(images.data<float>()[i * kNumel + k], own + others);
    }
  }
}

TEST(Cutmix, ARectangleOfTheNextImageCountsByItsArea) {
  const Tensor before = noise(200);
  Tensor images = before.clone();
  const MixedTargets mixed = mix({.cutmix = 1}, indices_of(200), kDraw, labels_of(200), images);
  int cut = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const float *x = before.data<float>() + i * kNumel, *y = before.data<float>() + (i + 1) % 200 * kNumel,
                *z = images.data<float>() + i * kNumel;
    int64_t taken = 0, top = kImageSide, bottom = -1, left = kImageSide, right = -1;
    for (int64_t row = 0; row < kImageSide; ++row)
      for (int64_t column = 0; column < kImageSide; ++column) {
        const int64_t at = (row * kImageSide + column) * 3;
        const bool other = z[at] != x[at];
        for (int64_t c = 0; c < 3; ++c) ASSERT_EQ(z[at + c], other ? y[at + c] : x[at + c]);
        if (!other) continue;
        ++taken;
        top = std::min(top, row), bottom = std::max(bottom, row);
        left = std::min(left, column), right = std::max(right, column);
      }
    EXPECT_EQ(taken, taken == 0 ? 0 : (bottom - top + 1) * (right - left + 1)) << "it is a rectangle";
    EXPECT_EQ(mixed.share.data<float>()[i],
              static_cast<float>(1 - static_cast<double>(taken) / (kImageSide * kImageSide)));
    cut += taken > 0;
  }
  EXPECT_GT(cut, 150);
}

TEST(Mixup, SharesFollowTheBetaDistribution) {
  for (const double a : {0.05, 0.2, 1.0, 4.0}) {
    const int64_t n = 4000;
    Tensor images = Tensor::zeros({n, 1, 1, 1});
    const MixedTargets mixed = mix({.mixup = a}, indices_of(n), kDraw, labels_of(n), images);
    double sum = 0, squares = 0;
    for (const float l : mixed.share.span<float>()) {
      sum += l;
      squares += (l - 0.5) * (l - 0.5);
    }
    const double variance = 1 / (4 * (2 * a + 1));
    // Draws are a function of the key, so they are the same in every run. The mean may differ by 4 standard errors, the
    // variance by about as many.
    EXPECT_NEAR(sum / n, 0.5, 4 * std::sqrt(variance / n)) << a;
    EXPECT_NEAR(squares / n, variance, 0.06 * variance) << a;
  }
}

TEST(Mixing, WithBothEachIsDoneInHalfOfTheDraws) {
  const Tensor before = noise(400);
  Tensor images = before.clone(), again = before.clone();
  const Mixing both{.mixup = 1, .cutmix = 1};
  const MixedTargets mixed = mix(both, indices_of(400), kDraw, labels_of(400), images);
  int cuts = 0;
  for (int64_t i = 0; i < 400; ++i) {
    int64_t own = 0;
    for (int64_t k = 0; k < kNumel; ++k)
      own += images.data<float>()[i * kNumel + k] == before.data<float>()[i * kNumel + k];
    cuts += own > 10;
  }
  EXPECT_NEAR(cuts, 200, 45);  // a fair coin 400 times: 4.5 standard errors
  EXPECT_TRUE(same_bits(mix(both, indices_of(400), kDraw, labels_of(400), again).share, mixed.share));
  EXPECT_TRUE(same_bits(again, images));
  Tensor other = before.clone();
  EXPECT_FALSE(same_bits(
      mix(both, indices_of(400), {.seed = 4, .epoch = 2, .augment = true}, labels_of(400), other).share, mixed.share));
}

DataConfig synthetic() {
  DataConfig config{.kind = "synthetic"};
  config.image_size = 8;
  config.size = 60;
  return config;
}

TEST(Mixing, IsDoneWithinTheShareOfAVirtualRank) {
  const std::shared_ptr<const Dataset> data = open_dataset(synthetic(), Split::train);
  LoaderOptions options{.seed = 1, .global_batch = 12, .virtual_ranks = 3};
  options.threads = 0;
  Loader plain(data, options);
  options.mixing.mixup = 0.4;
  Loader loader(data, options);
  for (int64_t step = 0; step < 7; ++step)
    for (int vrank = 0; vrank < 3; ++vrank) {
      Batch expected = plain.batch(step, vrank);
      EXPECT_FALSE(expected.mixed.other.defined());
      std::vector<int64_t> indices;
      for (int64_t i = 0; i < 4; ++i) indices.push_back(loader.index(step / 5, step % 5 * 12 + vrank * 4 + i));
      const MixedTargets mixed = mix(options.mixing, indices, {.seed = 1, .epoch = step / 5, .augment = true},
                                     expected.target, expected.input);
      const Batch batch = loader.batch(step, vrank);
      EXPECT_TRUE(same_bits(batch.input, expected.input));
      EXPECT_TRUE(same_bits(batch.target, expected.target));
      EXPECT_TRUE(same_bits(batch.mixed.other, mixed.other));
      EXPECT_TRUE(same_bits(batch.mixed.share, mixed.share));
    }
  options.augment = false;
  EXPECT_FALSE(Loader(data, options).batch(0, 0).mixed.other.defined());
  options.augment = true;
  options.global_batch = 3;
  EXPECT_FALSE(Loader(data, options).batch(0, 0).mixed.other.defined()) << "a batch of one has no partner";
}

TEST(Mixing, RefusesWhatMakesNoSense) {
  const auto images = open_dataset(synthetic(), Split::train);
  const auto text = open_dataset({.kind = "synthetic_text"}, Split::train);
  const auto error = [](const Mixing& mixing, const Dataset& data) {
    return message_of<UsageError>([&] { check_mixing(mixing, data); });
  };
  EXPECT_EQ(error({.mixup = 0.05, .cutmix = 4}, *images), "");
  EXPECT_EQ(error({}, *text), "");
  EXPECT_NE(error({.mixup = 0.01}, *images).find("data.mixup must be 0 or from 0.05 to 4, got 0.01"),
            std::string::npos);
  EXPECT_NE(error({.cutmix = -1}, *images).find("data.cutmix must be"), std::string::npos);
  EXPECT_NE(error({.mixup = std::nan("")}, *images).find("data.mixup must be"), std::string::npos);
  EXPECT_NE(error({.cutmix = 1}, *text).find("data.cutmix mixes images; the samples of these data are of shape (256,)"),
            std::string::npos);
}

// Logits (4, 5), and targets in which one sample is mixed with a sample of its own class.
struct MixtureCase {
  Tensor logits = Tensor::empty({4, 5}), own = Tensor::from<int64_t>({1, 4, 0, 2}, {4}),
         other = Tensor::from<int64_t>({3, 0, 0, 1}, {4}), share = Tensor::from<float>({0.25f, 0.5f, 0.75f, 1.0f}, {4});
  MixtureCase() {
    for (int64_t i = 0; i < 20; ++i)
      logits.data<float>()[i] = 4 * uniform01(philox(8, static_cast<uint32_t>(i), 0, 0, 0).v[0]) - 2;
  }
  Targets targets() const { return {own, other, share}; }
  Tensor row(const Tensor& t, int64_t i) const {
    Tensor one = Tensor::empty({1}, DType::i64);
    *one.data<int64_t>() = t.data<int64_t>()[i];
    return one;
  }
  Tensor row(int64_t i) const {
    return Tensor::from(logits.span<float>().subspan(static_cast<size_t>(i) * 5, 5), {1, 5});
  }
};

TEST(MixtureLoss, IsTheWeightedSumOfThoseOfBothClasses) {
  const MixtureCase c;
  for (const double smoothing : {0.0, 0.1}) {
    const CrossEntropyOptions options{.label_smoothing = smoothing};
    Var logits(c.logits, /*requires_grad=*/true);
    const Var loss = cross_entropy(logits, c.targets(), options);
    backward(loss);
    double expected = 0;
    for (int64_t i = 0; i < 4; ++i) {
      Var one(c.row(i), true), two(c.row(i), true);
      const Var first = cross_entropy(one, c.row(c.own, i), options),
                second = cross_entropy(two, c.row(c.other, i), options);
      const double share = c.share.data<float>()[i];
      expected += share * first.value().item() + (1 - share) * second.value().item();
      backward(first);
      backward(second);
      for (int64_t k = 0; k < 5; ++k)
        // 1e-6 and 1e-5 allow for a few roundings to float32 of gradients below 1 and of a sum of four losses.
        EXPECT_NEAR(logits.grad().data<float>()[i * 5 + k],
                    share * one.grad().data<float>()[k] + (1 - share) * two.grad().data<float>()[k], 1e-6);
    }
    EXPECT_NEAR(loss.value().item(), expected, 1e-5);
  }
}

TEST(MixtureLoss, AWholeShareOrAnIgnoredClassIsNoMixture) {
  MixtureCase c;
  const auto loss = [&](const Targets& targets) {
    return cross_entropy(Var(c.logits), targets, {.ignore_index = 3}).value().item();
  };
  Tensor whole = Tensor::full({4}, 1);
  EXPECT_EQ(loss({c.own, c.other, whole}), loss(c.own));
  EXPECT_EQ(loss({c.own, Tensor::full({4}, 3, DType::i64), c.share}), loss(c.own));
  EXPECT_NE(message_of<UsageError>([&] {
              cross_entropy(Var(c.logits), Targets(c.own, c.other, Tensor::full({3}, 1)));
            }).find("[cross_entropy] mixtures need"),
            std::string::npos);
}

TEST(MixtureLoss, AMicroBatchTakesIt) {
  const auto network = build({.kind = "resnet20"}, {.sample = {kImageSide, kImageSide, 3}, .classes = 41}, /*seed=*/1);
  Tensor images = noise(4);
  const Tensor labels = labels_of(4);
  const MixedTargets mixed = mix({.mixup = 1}, indices_of(4), kDraw, labels, images);
  const Targets targets(labels, mixed.other, mixed.share);
  const MicroBatchResult result = micro_batch_gradient(*network, images, targets, {}, Rng{}),
                         again = micro_batch_gradient(*network, images, targets, {}, Rng{}),
                         plain = micro_batch_gradient(*network, images, labels, {}, Rng{});
  EXPECT_EQ(result.count, 4);
  EXPECT_NE(result.loss_sum, plain.loss_sum);
  EXPECT_EQ(result.correct, plain.correct);
  EXPECT_EQ(result.loss_sum, again.loss_sum);
  for (size_t i = 0; i < result.gradients.size(); ++i) EXPECT_TRUE(same_bits(result.gradients[i], again.gradients[i]));
}

}  // namespace
}  // namespace elinvar::test
