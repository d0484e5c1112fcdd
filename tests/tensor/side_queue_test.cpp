// Side queues of a GPU: work on them sees what it follows, and what joins them sees their work.
#include "tensor/side_queue.h"

#include <gtest/gtest.h>

#include "tensor/graph.h"
#include "tensor/ops/pointwise.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"

namespace elinvar::test {
namespace {

class SideQueues : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  Tensor full(double value) const { return Tensor::full({1000}, value, DType::f32, device_); }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, SideQueues, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SideQueues);

Tensor expected(double value) { return Tensor::full({1000}, value); }

TEST_P(SideQueues, AQueueSeesWhatItFollowsAndIsSeenByWhatJoinsIt) {
  const Tensor x = mul(full(3.0), 2.0);
  Tensor on_the_queue;
  {
    const SideQueue side(device_, SideQueue::Of::gradients);
    side.follow();
    on_the_queue = add(x, 1.0);
  }
  SideQueue::join(device_, SideQueue::Of::gradients);
  EXPECT_TRUE(same_bits(mul(on_the_queue, 2.0).to(Device{}), expected(14.0)));
}

TEST_P(SideQueues, AQueueFollowsAnother) {
  const Tensor x = mul(full(3.0), 2.0);
  Tensor sum, sent;
  {
    const SideQueue side(device_, SideQueue::Of::gradients);
    side.follow();
    sum = add(x, 1.0);
  }
  {
    const SideQueue side(device_, SideQueue::Of::transfers);
    side.follow(SideQueue::Of::gradients);
    sent = mul(sum, 10.0);
  }
  SideQueue::join(device_, SideQueue::Of::transfers);
  EXPECT_TRUE(same_bits(sent.to(Device{}), expected(70.0)));
}

TEST_P(SideQueues, AQueueFollowsAMarkInAGraph) {
  Tensor early, late;
  Mark half;
  Graph graph(device_, {.tensors = {full(0.0)}}, [&](std::span<const Tensor> given) {
    early = mul(given[0], 2.0);
    half = mark({&early, 1});
    late = add(early, 1.0);
  });
  for (const double value : {3.0, 5.0}) {
    graph.replay({.tensors = {full(value)}});
    Tensor on_the_queue;
    {
      const SideQueue side(device_, SideQueue::Of::gradients);
      side.follow(half);
      on_the_queue = add(early, 1.0);
    }
    SideQueue::join(device_, SideQueue::Of::gradients);
    EXPECT_TRUE(same_bits(on_the_queue.to(Device{}), expected(2 * value + 1)));
    EXPECT_TRUE(same_bits(late.to(Device{}), expected(2 * value + 1)));
  }
}

}  // namespace
}  // namespace elinvar::test
