// Ops on rows on a GPU, for rows of all lengths: a warp sums in steps of 64, 128 and 256 elements, and longer rows in
// segments of 4096.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tensor/ops/batch_norm.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/cross_entropy_shards.h"
#include "tensor/ops/global_norm.h"
#include "tensor/ops/layer_norm.h"
#include "tensor/ops/optimizer.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/pool.h"
#include "tensor/ops/row_sum.h"
#include "tensor/ops/softmax.h"
#include "tensor/ops/top1_correct.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"

namespace elinvar::test {
namespace {

class DeviceRows : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  // Compares the results of `op` on the GPU with those on the CPU.
  void expect_same(const char* name, const Tensors& inputs, const std::function<Tensors(const Tensors&)>& op) const {
    Tensors sent;
    for (const Tensor& t : inputs) sent.push_back(t.to(device_));
    const Tensors expected = op(inputs), got = op(sent);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i].to(Device{}), expected[i])) << name << ", result " << i;
  }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, DeviceRows, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceRows);

// The last one has segments for more than half of the lanes that add them up.
constexpr int64_t kRowLengths[] = {1, 40, 100, 150, 201, 300, 601, 1024, 4421, 12500, 150001};
int64_t rows_for(int64_t n) { return n > 20000 ? 1 : 3; }

TEST_P(DeviceRows, Softmax) {
  for (const int64_t n : kRowLengths)
    expect_same("softmax", {normal({rows_for(n), n}, "x"), normal({rows_for(n), n}, "dy")}, [](const Tensors& t) {
      const Tensor y = softmax(t[0]), log_y = log_softmax(t[0]);
      return Tensors{y, log_y, softmax_backward(t[1], y), log_softmax_backward(t[1], log_y)};
    });
}

TEST_P(DeviceRows, SumsAndNorms) {
  for (const int64_t n : kRowLengths)
    expect_same("sums", {normal({rows_for(n), n}, "x"), normal({rows_for(n), n}, "y")}, [](const Tensors& t) {
      return Tensors{row_sum(t[0], 3.0), dot(t[0], t[1]), Tensor::scalar(square_sum(t), DType::f64)};
    });
}

TEST_P(DeviceRows, RowNorms) {
  for (const int64_t n : kRowLengths)
    for (const RowNorm kind : {RowNorm::layer, RowNorm::rms})
      expect_same("row norm",
                  {normal({rows_for(n), n}, "x"), normal({n}, "gamma"), normal({n}, "beta"),
                   normal({rows_for(n), n}, "dy"), normal({rows_for(n), n}, "addend")},
                  [&](const Tensors& t) {
                    const Tensor beta = kind == RowNorm::layer ? t[2] : Tensor();
                    const AddNormResult added = add_norm(kind, t[0], t[4], t[1], beta, 1e-5, DType::f32);
                    const RowNormResult plain =
                        kind == RowNorm::layer ? layer_norm(t[0], {}, {}, 1e-5) : rms_norm(t[0], {}, 1e-5);
                    const RowNormGradients g = row_norm_backward(kind, t[3].clone(), t[0], t[1], added.norm, true,
                                                                 true),
                                           dx = row_norm_backward(kind, t[3].clone(), t[0], {}, plain, true, false);
                    return Tensors{added.sum, added.norm.y, added.norm.r, plain.y, g.dx, g.dgamma, dx.dx};
                  });
}

TEST_P(DeviceRows, Losses) {
  const Tensor targets = Tensor::from<int64_t>(std::vector<int64_t>{3, -100, 0}, {3});
  for (const int64_t n : kRowLengths)
    for (const double smoothing : {0.0, 0.1})
      if (n > 3)
        expect_same("loss", {normal({rows_for(n), n}, "x"), targets.slice(0, 0, rows_for(n)), Tensor::scalar(0.7)},
                    [&](const Tensors& t) {
                      const CrossEntropyResult r = cross_entropy(t[0], t[1], smoothing, -100);
                      return Tensors{
                          r.loss,
                          r.m,
                          r.r,
                          cross_entropy_backward(t[2], t[0].clone(), r, smoothing, -100),
                          top1_correct(t[0], t[1], -100),
                          cross_entropy_terms(t[0], t[1], smoothing, -100, {.first = 1, .count = n, .whole = n + 40})};
                    });
}

TEST_P(DeviceRows, Lamb) {
  std::vector<LambArgs> constants;
  Tensors inputs;
  for (const char* name : {"g", "p", "m", "v"})
    for (const int64_t n : kRowLengths) inputs.push_back(mul(normal({n}, name), normal({n}, name)));
  for (const int64_t n : kRowLengths)
    constants.push_back({.g = {},
                         .p = {},
                         .m = {},
                         .v = {},
                         .square_sums = {},
                         .n = n,
                         .beta1 = 0.9f,
                         .one_minus_beta1 = 0.1f,
                         .beta2 = 0.99f,
                         .one_minus_beta2 = 0.01f,
                         .eps = 1e-6f,
                         .weight_decay = 0.1f,
                         .step_size = 0.01f});
  expect_same("lamb", inputs, [&](const Tensors& t) {
    const size_t count = std::size(kRowLengths);
    std::vector<Tensor> parts[4];
    for (size_t i = 0; i < t.size(); ++i) parts[i / count].push_back(t[i].clone());
    Tensors results{lamb_moments(parts[0], parts[1], parts[2], parts[3], constants)};
    lamb_apply(parts[1], parts[2], parts[3], constants);
    for (const auto& part : parts) results.insert(results.end(), part.begin(), part.end());
    return results;
  });
}

TEST_P(DeviceRows, Sgd) {
  Tensors inputs;
  std::vector<SgdArgs> constants;
  for (const char* name : {"g", "p", "v"})
    for (const int64_t n : kRowLengths) inputs.push_back(normal({n}, name));
  for (const int64_t n : kRowLengths) {
    SgdArgs& a = constants.emplace_back();
    a.n = n;
    a.lr = 0.1f;
    a.momentum = 0.9f;
  }
  for (const bool momentum : {false, true})
    expect_same("sgd", inputs, [&](const Tensors& t) {
      const size_t count = std::size(kRowLengths);
      std::vector<Tensor> parts[3];
      for (size_t i = 0; i < t.size(); ++i) parts[i / count].push_back(t[i].clone());
      if (!momentum) parts[2].clear();
      sgd(parts[0], parts[1], parts[2], constants);
      return Tensors(parts[1].begin(), parts[1].end());
    });
}

// Angles beyond the range of the fast reduction.
TEST_P(DeviceRows, HugeAngles) {
  Tensor x = normal({300}, "x");
  for (int64_t i = 0; i < x.numel(); i += 3) x.data<float>()[i] *= 1e20f;
  expect_same("angles", {x}, [](const Tensors& t) { return Tensors{sin(t[0]), cos(t[0])}; });
}

// Sums of many leaves, and masks of sums x a + b whose sign depends on their one rounding: b is the rounded product.
TEST_P(DeviceRows, BatchNormOfManyRows) {
  const int64_t rows = 9000, channels = 20;
  const Tensor x = normal({rows, channels}, "x"), y = normal({rows, channels}, "y"),
               dy = normal({rows, channels}, "dy"), gamma = normal({channels}, "gamma"),
               beta = normal({channels}, "beta");
  const BatchStatistics s = batch_statistics(x);
  BatchNormFactors f = batch_norm_factors(s.mean, s.var, gamma, beta, 1e-5);
  for (int64_t c = 0; c < channels; ++c)
    f.b.data<float>()[c] = -(f.a.data<float>()[c] * x.data<float>()[c % 8 * channels + c]);
  for (const ReluMask mask : {ReluMask::none, ReluMask::from_x, ReluMask::from_y})
    expect_same("sums", {x, y, dy, f.mean, f.inv, f.a, f.b}, [&](const Tensors& t) {
      const BatchNormFactors of{.mean = t[3], .inv = t[4], .a = t[5], .b = t[6]};
      const BatchNormSums sums = batch_norm_sums(t[2].clone(), t[0], t[1], of, mask, true);
      return Tensors{sums.sum_g, sums.sum_gx, batch_norm_gradient(t[2].clone(), t[0], t[1], of, &sums, mask),
                     batch_norm_gradient(t[2].clone(), t[0], t[1], of, nullptr, mask)};
    });
}

// The mask is the result's, which a residual needs. Channels are in pieces of 16 bytes or not.
TEST_P(DeviceRows, BatchNormOfASum) {
  for (const bool training : {false, true})
    for (const Shape& shape : {Shape{16, 9, 20}, Shape{9, 8, 21}})
      expect_same("gradient",
                  {normal(shape, "x"), normal(shape, "y"), normal(shape, "dy"), normal({shape[2]}, "gamma"),
                   normal({shape[2]}, "beta")},
                  [&](const Tensors& t) {
                    const BatchStatistics s = batch_statistics(t[0]);
                    const BatchNormFactors f = batch_norm_factors(s.mean, s.var, t[3], t[4], 1e-5);
                    const BatchNormSums sums = batch_norm_sums(t[2].clone(), t[0], t[1], f, ReluMask::from_y, true);
                    return Tensors{
                        batch_norm_apply(t[0], f, {}, false), batch_norm_apply(t[0], f, t[1], false), sums.sum_g,
                        sums.g,
                        batch_norm_gradient(t[2].clone(), t[0], t[1], f, training ? &sums : nullptr, ReluMask::from_y)};
                  });
}

}  // namespace
}  // namespace elinvar::test
