// exp and log in softmax, losses and routers on a GPU, which a loop over a row computes at several places: each is
// given numbers for which the last bit of each coefficient decides a result (deciding_arguments.h).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/route.h"
#include "tensor/ops/softmax.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/tensor/deciding_arguments.h"

namespace elinvar::test {
namespace {

class DeviceExp : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  // Compares op(x) on the GPU with the CPU's result for the same values in float32.
  void expect_same(const std::string& name, const Tensor& x, const std::function<Tensors(const Tensor&)>& op) const {
    const Tensors expected = op(x.to(DType::f32)), got = op(x.to(device_));
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i].to(Device{}), expected[i].to(got[i].dtype())))
          << name << " of " << name_of(x.dtype()) << ", result " << i;
  }
  // Softmax, which takes float32, and losses.
  void expect_same_sums(const std::string& name, const Tensor& x, const std::vector<int64_t>& targets) const {
    if (x.dtype() == DType::f32)
      expect_same(name, x, [](const Tensor& t) { return Tensors{softmax(t), log_softmax(t)}; });
    expect_same(name, x, [&](const Tensor& t) {
      const CrossEntropyResult of = cross_entropy(t, Tensor::from(targets, {x.dim(0)}), 0.0, -100);
      return Tensors{of.loss, of.m, of.r};
    });
  }
  // Routers, whose logits are of float32.
  void expect_same_routes(const Tensor& logits) const {
    for (const int64_t chosen : {1, 2})
      expect_same("router", logits, [&](const Tensor& t) {
        const Routes of = route(t, chosen);
        const Tensor dweight = Tensor::full(of.weight.shape(), 1.0, DType::f32, t.device());
        return Tensors{of.weight, route_backward(dweight, t, of.weight, of.expert, of.start,
                                                 {.balance_weight = 1, .z_weight = 1})};
      });
  }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, DeviceExp, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceExp);

// The scores of float32 are below 0, and those of bfloat16 below a number with as many bits.
std::vector<DecidingDifference> differences_of(DType type) {
  std::vector<DecidingDifference> all(std::begin(kDecidingDifferences), std::end(kDecidingDifferences));
  if (type == DType::bf16) return all;
  all.clear();
  for (const float score : kDecidingScores) all.push_back({score, 0.0f});
  return all;
}

// Each row has 15 blocks of 32 elements, one for each thread of a warp. A row has a block of equal scores, whose sum
// changes by 32 times a last bit, and the largest score in the next block; other exponentials are zero.
TEST_P(DeviceExp, OfSumsOfRows) {
  constexpr int64_t kBlocks = 15, kColumns = 32 * kBlocks;
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::vector<DecidingDifference> all = differences_of(type);
    Tensor x =
        Tensor::full({static_cast<int64_t>(all.size()) * kBlocks, kColumns}, -std::numeric_limits<double>::infinity());
    std::vector<int64_t> targets;
    for (int64_t row = 0; row < x.dim(0); ++row) {
      const auto [score, largest] = all[static_cast<size_t>(row / kBlocks)];
      const int64_t block = row % kBlocks;
      float* const of_row = x.data<float>() + row * kColumns;
      for (int64_t i = 0; i < 32; ++i) of_row[32 * block + i] = score;
      targets.push_back((block + 1) % kBlocks * 32);
      of_row[targets.back()] = largest;
    }
    expect_same_sums("sums", x.to(type), targets);
    if (type == DType::f32) expect_same_routes(x);
  }
}

// The sum of a row is a whole number, which its odd elements add up, and the exponential of the first.
TEST_P(DeviceExp, OfLogarithmsOfSums) {
  constexpr int64_t kColumns = 4096;
  for (const DType type : {DType::f32, DType::bf16}) {
    std::vector<DecidingSum> all(std::begin(kDecidingSums), std::end(kDecidingSums));
    if (type == DType::bf16) all.assign(std::begin(kDecidingNarrowSums), std::end(kDecidingNarrowSums));
    Tensor x = Tensor::full({static_cast<int64_t>(all.size()), kColumns}, -std::numeric_limits<double>::infinity());
    for (int64_t row = 0; row < x.dim(0); ++row) {
      const auto [count, score, largest] = all[static_cast<size_t>(row)];
      float* const of_row = x.data<float>() + row * kColumns;
      of_row[0] = score;
      for (int i = 0; i < count; ++i) of_row[2 * i + 1] = largest;
    }
    expect_same_sums("logarithms", x.to(type), std::vector<int64_t>(all.size(), 1));
  }
}

TEST_P(DeviceExp, OfGradientsOfLogSoftmax) {
  constexpr auto kScores = static_cast<int64_t>(std::size(kDecidingScores));
  const Tensor y =
      Tensor::from(std::vector<float>(std::begin(kDecidingScores), std::end(kDecidingScores)), {1, kScores});
  Tensor dy = Tensor::zeros(y.shape());
  dy.data<float>()[kScores - 1] = 1.0f;
  expect_same("gradient", y, [&](const Tensor& t) { return Tensors{log_softmax_backward(dy.to(t.device()), t)}; });
}

// The probability of other classes than the target is a smoothed one, of which the first 17 bits are subtracted, so
// that bfloat16 has the others.
TEST_P(DeviceExp, OfGradientsOfLosses) {
  constexpr int64_t kClasses = 1024;
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [score, largest] : differences_of(type)) {
      int exponent = 0;
      const double e = std::exp(double{score} - double{largest}), mantissa = std::frexp(e, &exponent),
                   smoothing = std::ldexp(std::floor(std::ldexp(mantissa, 17)), exponent - 18);
      const float m = largest, x = score;
      expect_same("gradient", Tensor::full({1, kClasses}, x, type), [&](const Tensor& t) {
        const CrossEntropyResult of{.loss = {},
                                    .targets = Tensor::zeros({1}, DType::i64, t.device()),
                                    .m = Tensor::full({1}, m, DType::f32, t.device()),
                                    .r = Tensor::full({1}, 0x1p-11, DType::f32, t.device())};
        return Tensors{
            cross_entropy_backward(Tensor::full({}, 1.0, DType::f32, t.device()), t.clone(), of, smoothing, -100)};
      });
    }
}

}  // namespace
}  // namespace elinvar::test
