// Functions of one tensor on a GPU: at every magnitude and for special values, and densely where they are computed by
// polynomials, so that the last bit of each coefficient shows in some result. For bfloat16 at every number there is.
#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "tensor/ops/pointwise.h"
#include "tensor/philox.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"

namespace elinvar::test {
namespace {

class DeviceFunctions : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, DeviceFunctions, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceFunctions);

constexpr int64_t kPatterns = 1 << 16, kDense = 1 << 16, kTail = 3;

float uniform(uint64_t key, int64_t i) { return uniform01(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0]); }

// Returns all bfloat16 numbers eight times, so that each is at every place in an access of 16 bytes. For float32 it
// returns them once as they are and once with the upper half repeated below, then numbers within 10 and 10^5 of zero.
// The last elements are a tail that no access of 16 bytes covers.
Tensor arguments(DType type) {
  const bool narrow = type == DType::bf16;
  const int64_t patterns = (narrow ? 8 : 2) * kPatterns;
  Tensor x = Tensor::empty({patterns + (narrow ? 0 : kDense) + kTail});
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto upper = static_cast<uint32_t>(i + i / kPatterns) << 16;
    if (narrow || i < patterns)
      x.data<float>()[i] = std::bit_cast<float>(i < kPatterns || narrow ? upper : upper | upper >> 16);
    else x.data<float>()[i] = (20 * uniform(1, i) - 10) * (i % 5 == 0 ? 1e4f : 1.0f);
  }
  return x.to(type);
}

TEST_P(DeviceFunctions, OfOneTensorAtEveryMagnitude) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor x = arguments(type), wide = x.to(DType::f32);
    Tensor dy = Tensor::empty(x.shape());
    for (int64_t i = 0; i < dy.numel(); ++i) dy.data<float>()[i] = 4 * uniform(2, i) - 2;
    const Tensor narrow_dy = dy.to(type);
    dy = narrow_dy.to(DType::f32);
    const Tensor x_there = x.to(device_), dy_there = narrow_dy.to(device_);
    const auto check = [&]<class Function>() {
      const std::string name = pointwise::kUnaryNames[pointwise::UnaryFunctions::index_of<Function>()];
      const Tensor y = unary<Function>(wide).to(type), dx = unary_backward<Function>(dy, wide).to(type);
      EXPECT_TRUE(same_bits(unary<Function>(x_there).to(Device{}), y)) << name << " of " << name_of(type);
      // From 1 on, no access of 16 bytes is aligned.
      for (const int64_t first : {int64_t{0}, int64_t{1}}) {
        const auto part = [&](const Tensor& t) { return t.slice(0, first, 2 * kPatterns + kTail); };
        EXPECT_TRUE(same_bits(unary<Function>(part(x_there)).to(Device{}), part(y)))
            << name << " of " << name_of(type) << " from " << first;
        EXPECT_TRUE(same_bits(unary_backward<Function>(part(dy_there), part(x_there)).to(Device{}), part(dx)))
            << "gradient of " << name << " of " << name_of(type) << " from " << first;
      }
    };
    [&]<class... Functions>(pointwise::List<Functions...>) {
      (check.template operator()<Functions>(), ...);
    }(pointwise::UnaryFunctions{});
  }
}

}  // namespace
}  // namespace elinvar::test
