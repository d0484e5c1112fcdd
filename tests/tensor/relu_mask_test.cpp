// The masks of batch norms with a ReLU on GPUs where y is a zero or the smallest number of either sign: what the CPU
// lets pass, passes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "tensor/ops/batch_norm.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"

namespace elinvar::test {
namespace {

class ReluMasks : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, ReluMasks, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReluMasks);

constexpr float kLeast = std::numeric_limits<float>::denorm_min();

// Two of three elements are one of the numbers next to zero, in bfloat16 those of its own.
Tensor near_zero(Tensor x, DType type) {
  const float least = type == DType::bf16 ? 0x1p-133f : kLeast;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float numbers[] = {0.0f, least, -least, -0.0f};
    if (i % 3 != 0) x.data<float>()[i] = numbers[i / 3 % 4];
  }
  return x;
}

TEST_P(ReluMasks, OfBatchNormsNextToZero) {
  // Channels in pieces of 16 bytes, and an odd number of them; rows of several leaves, of which the last is short.
  for (const DType type : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{1, 10, 14, 24}, Shape{1, 10, 14, 21}})
      for (const ReluMask mask : {ReluMask::from_x, ReluMask::from_y}) {
        SCOPED_TRACE(fmt::format("{} {}, mask {}", name_of(type), to_string(shape), static_cast<int>(mask)));
        const int64_t count = shape[3];
        const Shape channels{count};
        Tensor all_y = near_zero(normal(shape, "y"), type), all_dy = normal(shape, "dy"), a = normal(channels, "a"),
               b = near_zero(normal(channels, "b"), DType::f32), mean = normal(channels, "mean"),
               inv = normal(channels, "inv");
        // The factors of two of three channels are zero, so y is b, whatever x is. Products of the channel before the
        // last are so small that they, and their sum, are negative zeros.
        for (int64_t c = 0; c < count; ++c)
          if (c % 3 != 0) a.data<float>()[c] = 0.0f;
        a.data<float>()[count - 2] = 0.0f;
        b.data<float>()[count - 2] = 1.0f;
        mean.data<float>()[count - 2] = -100.0f;
        inv.data<float>()[count - 2] = 1e-30f;
        for (int64_t i = count - 2; i < all_y.numel(); i += count) {
          all_y.data<float>()[i] = 1.0f;
          all_dy.data<float>()[i] = -1e-30f;
        }
        const Tensor x = normal(shape, "x").to(type), dy = all_dy.to(type), y = all_y.to(type);
        const BatchNormFactors factors{mean, inv, a, b};
        const auto results = [&](Device device, DType kind) {
          const auto sent = [&](const Tensor& t) { return t.to(kind).to(device); };
          const auto of_channels = [&](const Tensor& t) { return t.to(device); };
          const BatchNormFactors f{of_channels(factors.mean), of_channels(factors.inv), of_channels(factors.a),
                                   of_channels(factors.b)};
          const Tensor of_y = mask == ReluMask::from_y ? sent(y) : Tensor();
          const BatchNormSums sums = batch_norm_sums(sent(dy), sent(x), of_y, f, mask, true);
          return Tensors{batch_norm_apply(sent(x), f, {}, true).to(type),
                         sums.sum_g,
                         sums.sum_gx,
                         sums.g.to(type),
                         batch_norm_gradient(sent(dy), sent(x), of_y, f, &sums, mask).to(type),
                         batch_norm_gradient(sent(dy), sent(x), of_y, f, nullptr, mask).to(type)};
        };
        const Tensors here = results(Device{}, DType::f32), there = results(device_, type);
        for (size_t i = 0; i < here.size(); ++i)
          EXPECT_TRUE(same_bits(there[i].to(Device{}).to(DType::f32), here[i].to(DType::f32))) << "result " << i;
      }
}

}  // namespace
}  // namespace elinvar::test
