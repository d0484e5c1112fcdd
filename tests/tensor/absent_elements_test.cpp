// Tensors whose elements may be absent: handles and views outlive their memory.
#include <gtest/gtest.h>

#include "tensor/allocator.h"
#include "tensor/base/check.h"
#include "tensor/heap.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/pointwise.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"

namespace elinvar {
namespace {

using test::same_bits;

TEST(AbsentElements, HandlesAndViewsStayValid) {
  const Tensor values = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  std::vector<Device> devices = test::other_devices();
  devices.push_back(Device{});
  for (const Device device : devices) {
    SCOPED_TRACE(to_string(device));
    Tensor x = Tensor::absent({2, 3}, DType::f32, device);
    const Tensor handle = x, column = x.transpose(0, 1).select(0, 1);  // made while there are no elements
    EXPECT_FALSE(x.resident());
    for (int round = 0; round < 3; ++round) {
      x.restore();
      EXPECT_TRUE(handle.resident() && column.resident());
      copy(mul(values, round), x);
      EXPECT_TRUE(same_bits(add(handle, handle).to(Device{}), mul(values, 2 * round)));
      EXPECT_TRUE(same_bits(column.to(Device{}), mul(values, round).select(1, 1).clone()));
      x.release();
      x.release();
      EXPECT_FALSE(handle.resident() || column.resident());
      EXPECT_EQ(handle.shape(), (Shape{2, 3}));
    }
  }
}

TEST(AbsentElements, RestoringThoseThatAreThereKeepsThem) {
  Tensor x = Tensor::absent({3});
  x.restore();
  x.data<float>()[2] = 5;
  const void* address = x.raw();
  x.restore();
  EXPECT_EQ(x.raw(), address);
  EXPECT_EQ(x.data<float>()[2], 5);
  EXPECT_FALSE(x.unique()) << "no operation may write its result into it";
}

TEST(AbsentElements, OtherTensorsAreAlwaysResident) {
  Tensor x = Tensor::zeros({3});
  EXPECT_TRUE(x.resident());
  EXPECT_THROW(x.release(), UsageError);
  EXPECT_THROW(x.restore(), UsageError);
}

TEST(AbsentElements, TheirMemoryIsFreed) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  HostAllocator& allocator = HostAllocator::instance();
  const int64_t before = allocator.stats().in_use;
  Tensor x = Tensor::absent({kBytes / 4});
  EXPECT_LT(allocator.stats().in_use, before + kBytes / 100);
  x.restore();
  fill(x, 1);
  EXPECT_GE(allocator.stats().in_use, before + kBytes);
  const size_t full = resident_memory();
  x.release();
  EXPECT_EQ(allocator.stats().in_use, before);
  allocator.release_cached();
  EXPECT_LT(resident_memory(), full - kBytes / 2);
}

TEST(AbsentElementsDeathTest, UseIsAnInternalError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Tensor x = Tensor::absent({3});
  EXPECT_DEATH(x.data<float>(), "elements of a tensor are in memory while they are used");
  x.restore();
  const Tensor view = x.slice(0, 1, 2);
  x.release();
  EXPECT_DEATH(view.item(), "elements of a tensor are in memory while they are used");
  EXPECT_DEATH(add(x, x), "elements of a tensor are in memory while they are used");
}

}  // namespace
}  // namespace elinvar
