// Functions of one tensor on a GPU: at every magnitude and for special values, and densely where they are computed by
// polynomials, so that the last bit of each coefficient shows in some result. For bfloat16 at every number there is.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "tensor/ops/pointwise.h"
#include "tensor/philox.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/tensor/deciding_arguments.h"

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

// Numbers, and a gradient of the result for each.
struct Arguments {
  std::vector<float> x, dy;
  void add(float of_x, float of_dy) {
    x.push_back(of_x);
    dy.push_back(of_dy);
  }
};

// Arguments at which the formulas distinguish cases.
constexpr float kEdges[] = {0, 0x1p-126f, 0x1p-25f, 0.625f, 0.9375f, 1, 3, 4, 6, 10, 20, 89, 90, 105, 0x1p20f};

// Those for which the last bit of each coefficient decides the result, several times: each is at every place in an
// access of 16 bytes. For bfloat16 there are such pairs of number and gradient.
void add_deciding(Arguments& all, DType type) {
  const size_t first = all.x.size();
  for (size_t place = 0; place < 8; ++place) {
    while ((all.x.size() - first) % 8 != place) all.add(0, 1);
    if (type == DType::bf16)
      for (const auto& [x, dy] : kDecidingPairs) all.add(x, dy);
    else if (place < 4) {
      for (const float x : kDecidingArguments) all.add(x, 1);
      for (const float edge : kEdges)
        for (const float x : {edge, std::nextafter(edge, 200.0f), std::nextafter(edge, -200.0f)})
          for (const float signed_x : {x, -x}) all.add(signed_x, 1);
    }
  }
}

// Returns the arguments. In bfloat16 these are all numbers, eight times, so that each is at every place in an access of
// 16 bytes. In float32 they are the same numbers once, once more with their bits repeated in the lower half, and the
// deciding numbers; `whole` counts the arguments up to here. Then come numbers within 10 and 10^5 of zero. The last
// elements are a tail that no access of 16 bytes covers.
Arguments arguments(DType type, int64_t& whole) {
  const bool narrow = type == DType::bf16;
  const int64_t patterns = (narrow ? 8 : 2) * kPatterns;
  Arguments all;
  for (int64_t i = 0; i < patterns; ++i) {
    const auto upper = static_cast<uint32_t>(i + i / kPatterns) << 16;
    all.add(std::bit_cast<float>(i < kPatterns || narrow ? upper : upper | upper >> 16), 4 * uniform(2, i) - 2);
  }
  add_deciding(all, type);
  while (all.x.size() % 8 != kTail) all.add(1, 1);
  whole = static_cast<int64_t>(all.x.size());
  for (int64_t i = 0; i < (narrow ? 0 : kDense); ++i)
    all.add((20 * uniform(1, i) - 10) * (i % 5 == 0 ? 1e4f : 1.0f), 4 * uniform(3, i) - 2);
  return all;
}

TEST_P(DeviceFunctions, OfOneTensorAtEveryMagnitude) {
  for (const DType type : {DType::f32, DType::bf16}) {
    int64_t whole = 0;
    const Arguments all = arguments(type, whole);
    const Shape shape{static_cast<int64_t>(all.x.size())};
    const Tensor x = Tensor::from(all.x, shape).to(type), wide = x.to(DType::f32),
                 narrow_dy = Tensor::from(all.dy, shape).to(type), dy = narrow_dy.to(DType::f32),
                 x_there = x.to(device_), dy_there = narrow_dy.to(device_);
    const auto check = [&]<class Function>() {
      const std::string name = pointwise::kUnaryNames[pointwise::UnaryFunctions::index_of<Function>()];
      const Tensor y = unary<Function>(wide).to(type), dx = unary_backward<Function>(dy, wide).to(type);
      EXPECT_TRUE(same_bits(unary<Function>(x_there).to(Device{}), y)) << name << " of " << name_of(type);
      // From 1 on, no access of 16 bytes is aligned.
      for (const int64_t first : {int64_t{0}, int64_t{1}}) {
        const auto part = [&](const Tensor& t) { return t.slice(0, first, whole); };
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
