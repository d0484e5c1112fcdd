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

// All upper halves of a float32's bits, with lower halves that bfloat16 does not have; then numbers within 10 of zero,
// and a tail that no access of 16 bytes covers.
Tensor arguments(DType type) {
  const uint32_t step = type == DType::f32 ? 65537 : 65536;
  Tensor x = Tensor::empty({kPatterns + kDense + kTail});
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] =
        i < kPatterns ? std::bit_cast<float>(static_cast<uint32_t>(i) * step) : 20 * uniform(1, i) - 10;
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
      // From 1 on, no access of 16 bytes is aligned.
      for (const int64_t first : {int64_t{0}, int64_t{1}}) {
        const auto part = [first](const Tensor& t) { return t.slice(0, first, t.numel()); };
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
