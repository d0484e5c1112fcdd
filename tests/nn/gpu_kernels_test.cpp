// Kernels for GPUs, run by the CPU or a GPU, in cases that no op row covers: trees of several levels, sums in binary64,
// and the parts of nn/ that read numbers back.
#include <gtest/gtest.h>

#include "nn/clip.h"
#include "nn/running_statistics.h"
#include "tensor/base/check.h"
#include "tensor/op_check.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/batch_norm.h"
#include "tensor/ops/column_sum.h"
#include "tensor/ops/copies.h"
#include "tensor/ops/gather.h"
#include "tensor/ops/global_norm.h"
#include "tensor/ops/rotary.h"
#include "tensor/ops/row_sum.h"
#include "tensor/philox.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::same_bits;

class GpuKernels : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!test::is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, GpuKernels, ::testing::ValuesIn(test::devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuKernels);

Tensor random(const Shape& shape, uint64_t key) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = uniform01(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0]) * 3.0f - 1.0f;
  return x;
}

TEST_P(GpuKernels, ColumnSumsOfManyLevels) {
  for (const Shape& shape : {Shape{1, 70, 300}, Shape{2, 64 * 8 * 17 + 5, 33}, Shape{1, 150000, 3}, Shape{3, 9000, 1},
                             Shape{2, 0, 5}, Shape{0, 7, 5}}) {
    const Tensor x = random(shape, 3);
    EXPECT_TRUE(same_bits(column_sum(x.to(device_), 7.0).to(Device{}), column_sum(x, 7.0))) << to_string(shape);
  }
}

// More copies than one launch takes, with lengths around a block's, some of which begin at odd places.
TEST_P(GpuKernels, CopiesOfManyTensors) {
  std::vector<Tensor> of;
  for (int64_t i = 0; i < 300; ++i) of.push_back(random({i % 7 == 0 ? 4090 + i / 7 : i % 29}, 5).to(device_));
  of.push_back(random({3000}, 6).to(device_).slice(0, 1, 2999));
  of.push_back(random({3000}, 6).to(DType::bf16).to(device_).slice(0, 1, 2999));
  const std::vector<Tensor> made = copies(of);
  ASSERT_EQ(made.size(), of.size());
  for (size_t i = 0; i < of.size(); ++i) {
    EXPECT_NE(made[i].raw(), of[i].raw());
    EXPECT_TRUE(same_bits(made[i].to(Device{}), of[i].to(Device{}))) << i;
  }
  EXPECT_TRUE(copies({}).empty());
  EXPECT_THROW(copies({of[0], Tensor::zeros({2, 3}).transpose(0, 1)}), UsageError);
}

TEST_P(GpuKernels, ColumnTreesOfManyLeaves) {
  for (int64_t leaves : {0, 1, 2, 3, 15, 16, 17, 127, 128, 129, 1000, 4099}) {
    for (int64_t cols : {1, 70}) {
      const Tensor x = random({leaves, cols}, 4);
      const auto tree = [&](const Tensor& from) {
        Tensor sum = Tensor::empty({cols}, DType::f32, from.device());
        on(from.device(), [&](auto& stream) { column_tree(stream, ColumnTreeArgs{in(from), out(sum), leaves, cols}); });
        return sum.to(Device{});
      };
      EXPECT_TRUE(same_bits(tree(x.to(device_)), tree(x))) << leaves << " leaves, " << cols << " columns";
    }
  }
}

TEST_P(GpuKernels, BatchStatisticsOfManyLevels) {
  for (const Shape& shape :
       {Shape{1, 5}, Shape{63, 1}, Shape{64, 300}, Shape{64 * 8 * 16 * 8 + 77, 40}, Shape{40000, 3}}) {
    const Tensor x = random(shape, 5);
    const BatchStatistics expected = batch_statistics(x), got = batch_statistics(x.to(device_));
    EXPECT_TRUE(same_bits(got.mean.to(Device{}), expected.mean)) << to_string(shape);
    EXPECT_TRUE(same_bits(got.var.to(Device{}), expected.var)) << to_string(shape);
  }
}

TEST_P(GpuKernels, NormsOfManyTensors) {
  std::vector<Tensor> tensors, moved;
  for (uint64_t i = 0; i < 70; ++i) {
    const auto n = static_cast<int64_t>(i % 7 == 0 ? 9001 + 4096 * i : 37 * i);
    tensors.push_back(random({n}, 20 + i));
    moved.push_back(tensors.back().to(device_));
  }
  EXPECT_EQ(square_sum(moved), square_sum(tensors));
  EXPECT_EQ(segment_sums(moved), segment_sums(tensors));
  EXPECT_EQ(global_norm(segment_sums(moved)), global_norm(tensors));
  EXPECT_EQ(clip_by_global_norm(moved, 1.0).scale, clip_by_global_norm(tensors, 1.0).scale);
  moved[3] = tensors[3];
  EXPECT_THROW(square_sum(moved), UsageError);
}

TEST_P(GpuKernels, ARowOfSegmentsOfSegments) {
  const Tensor x = random({4096 * 4097 + 5}, 9).reshape({1, -1}), there = x.to(device_);
  EXPECT_TRUE(same_bits(row_sum(there, 3.0).to(Device{}), row_sum(x, 3.0)));
  EXPECT_TRUE(same_bits(dot(there, there).to(Device{}), dot(x, x)));
}

TEST_P(GpuKernels, ManyPicksOfFewTargets) {
  const int64_t picks = 1500, extent = 7;
  const Tensor dy = random({2, picks, 3}, 10);
  Tensor index = Tensor::empty(dy.shape(), DType::i64);
  for (int64_t i = 0; i < index.numel(); ++i)
    index.data<int64_t>()[i] = philox(11, static_cast<uint32_t>(i), 0, 0, 0).v[0] % 5;  // two indices are never used
  EXPECT_TRUE(
      same_bits(gather_backward(dy.to(device_), 1, index, extent).to(Device{}), gather_backward(dy, 1, index, extent)));
}

TEST_P(GpuKernels, RotaryAnglesAreSentOnce) {
  const auto angles = [&](int64_t time) { return rotary_angles(time, 4, {}, 0, DType::f32, device_); };
  const RotaryAngles first = angles(5), again = angles(5);
  EXPECT_TRUE(again.cos.shares_storage(first.cos));
  EXPECT_TRUE(same_bits(angles(7).sin.to(Device{}), rotary_angles(7, 4, {}, 0, DType::f32).sin));
}

TEST_P(GpuKernels, AttentionSaysHowManyKeysItTakes) {
  const Tensor k = Tensor::zeros({1, 70000, 1, 1}, DType::f32, device_);
  const std::string message =
      test::message_of<UsageError>([&] { attention(k.slice(1, 0, 1), k, k, /*causal=*/false, 0.0); });
  EXPECT_NE(message.find("keys, got 70000; use --device cpu, or a shorter data.context"), std::string::npos) << message;
}

TEST_P(GpuKernels, RunningStatisticsStayThere) {
  const Tensor x = random({150, 9}, 6), old[] = {random({9}, 7), random({9}, 8)};
  const auto updated = [&](Device device) {
    const auto mean = std::make_shared<Buffer>(), var = std::make_shared<Buffer>();
    mean->value = old[0].to(device).clone();
    var->value = old[1].to(device).clone();
    const std::vector<Statistic> statistics{{mean, var, 0.1, batch_statistics(x.to(device))}};
    update_running_statistics(statistics, batch_statistics_of(statistics), 1);
    EXPECT_TRUE(mean->value.device() == device);
    return std::vector<Tensor>{mean->value.to(Device{}), var->value.to(Device{})};
  };
  const auto expected = updated(Device{}), got = updated(device_);
  EXPECT_TRUE(same_bits(got[0], expected[0]));
  EXPECT_TRUE(same_bits(got[1], expected[1]));
}

// A network may use a batch norm twice: its sums are then applied in order.
TEST_P(GpuKernels, ARunningStatisticMayBeUpdatedTwice) {
  const Tensor x = random({150, 9}, 6), y = random({60, 9}, 7), old = random({9}, 8);
  const auto updated = [&](Device device) {
    const auto mean = std::make_shared<Buffer>(), var = std::make_shared<Buffer>();
    mean->value = old.to(device).clone();
    var->value = old.to(device).clone();
    const std::vector<Statistic> statistics{{mean, var, 0.1, batch_statistics(x)},
                                            {mean, var, 0.3, batch_statistics(y)}};
    update_running_statistics(statistics, batch_statistics_of(statistics), 1);
    return std::vector<Tensor>{mean->value.to(Device{}), var->value.to(Device{})};
  };
  const auto expected = updated(Device{}), got = updated(device_);
  EXPECT_TRUE(same_bits(got[0], expected[0]));
  EXPECT_TRUE(same_bits(got[1], expected[1]));
}

}  // namespace
}  // namespace elinvar
