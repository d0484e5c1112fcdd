#pragma once
// Shared by tests of fast products: the devices that have them, and comparison with portable products.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tensor/precision.h"
#include "tests/support/other_devices.h"

namespace elinvar::test {

class OnTensorCores : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
    const elinvar::FastProducts products = fast_products(device_);
    if (!products.missing.empty()) GTEST_SKIP() << products.missing;
  }
  bool emulated() const { return device_.kind == DeviceKind::emulated; }
  Tensor there(const Tensor& t) const { return t.to(device_); }

  // Compares with `expected`, computed from the same rounded factors: only the order of additions and the rounding of
  // the result differ.
  void expect_close(const char* what, const Tensor& got, const Tensor& expected, double tolerance,
                    DType type = DType::f32) const {
    ASSERT_EQ(to_string(got.shape()), to_string(expected.shape())) << what;
    ASSERT_EQ(got.dtype(), type) << what;
    EXPECT_TRUE(got.device() == device_) << what;
    const Tensor here = got.to(Device{}).to(DType::f32).to_contiguous(), other = expected.to_contiguous();
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < here.numel(); ++i) {
      const double x = here.data<float>()[i], y = other.data<float>()[i];
      ASSERT_TRUE(std::isfinite(x)) << what << ", element " << i;
      largest = std::max(largest, std::abs(y));
      worst = std::max(worst, std::abs(x - y));
    }
    EXPECT_LE(worst, tolerance * largest) << what;
  }

  const Device device_ = GetParam();
};
inline constexpr Precision kFast[] = {Precision::bf16, Precision::tf32};

}  // namespace elinvar::test
