// Copies between the host and a GPU while it computes, and their uses: batches that are ready before they are
// requested, and rank gradients whose numbers arrive late.
#include "tensor/transfer.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "tensor/ops/pointwise.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::same_bits;

class Transfer : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!test::is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  const Device device_ = GetParam();
};

std::vector<Device> all_devices() {
  std::vector<Device> devices = test::devices_of_the_build();
  devices.push_back({});
  return devices;
}
INSTANTIATE_TEST_SUITE_P(, Transfer, ::testing::ValuesIn(all_devices()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });

Tensor numbers(int64_t n, float first) {
  std::vector<float> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), first);
  return Tensor::from(values, {n});
}

TEST_P(Transfer, WhatIsSentIsFoundByWhatFollows) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1'300'001}}) {
    const Tensor plain = numbers(n, 1.0f);
    Tensor locked = page_locked({n}, DType::f32, device_);
    std::copy_n(plain.data<float>(), n, static_cast<float*>(locked.raw()));
    for (const Tensor& host : {plain, locked}) {
      const Upload sent(host, device_);
      EXPECT_TRUE(sent.source().shares_storage(host));
      const Tensor there = sent.take();
      EXPECT_TRUE(there.device() == device_);
      EXPECT_TRUE(same_bits(add(there, 1.0).to(Device{}), add(plain, 1.0))) << n;
    }
  }
}

TEST_P(Transfer, WhatIsFetchedIsWhatWasThereBefore) {
  Tensor x = numbers(100'000, 0.0f).to(device_);
  Download first(x);
  const Tensor y = mul(x, 2.0);  // must not overwrite x, which is being copied
  Download second(y);
  EXPECT_TRUE(same_bits(first.wait(), numbers(100'000, 0.0f)));
  while (!second.ready()) {
  }
  EXPECT_TRUE(same_bits(second.wait(), mul(numbers(100'000, 0.0f), 2.0)));
  Download of_a_view(x.reshape({100, 1000}).transpose(0, 1));
  EXPECT_TRUE(same_bits(of_a_view.wait(), numbers(100'000, 0.0f).reshape({100, 1000}).transpose(0, 1).to_contiguous()));
}

// Their memory is reused at once, by copies and kernels that must wait for them.
TEST_P(Transfer, CopiesThatNobodyWaitsForHarmNobody) {
  for (int i = 0; i < 20; ++i) {
    const Tensor x = numbers(50'000, static_cast<float>(i));
    {
      const Upload dropped(x, device_);
      const Download also(mul(x.to(device_), 3.0));
    }
    const Tensor there = x.to(device_);
    EXPECT_TRUE(same_bits(add(there, there).to(Device{}), add(x, x)));
  }
}

// A released block of page-locked memory is not handed out before the copy that reads it is done.
TEST_P(Transfer, PageLockedMemoryIsNotReusedWhileItIsInTransit) {
  std::vector<Tensor> sent, copied;
  for (int i = 0; i < 20; ++i) {
    const Tensor plain = numbers(5000, static_cast<float>(i));
    Tensor locked = page_locked({5000}, DType::f32, device_);
    std::copy_n(plain.data<float>(), 5000, static_cast<float*>(locked.raw()));
    sent.push_back(Upload(locked, device_).take());
    copied.push_back(plain.to(device_));
  }
  for (int i = 0; i < 20; ++i)
    for (const auto* there : {&sent, &copied})
      EXPECT_TRUE(same_bits((*there)[static_cast<size_t>(i)].to(Device{}), numbers(5000, static_cast<float>(i)))) << i;
}

// A kernel is queued that reads a tensor. The tensor is released, and an upload reuses its memory: it must not
// overwrite what the kernel still reads.
TEST_P(Transfer, AnUploadDoesNotOverwriteWhatEarlierCallsRead) {
  Tensor x = numbers(100'000, 0.0f).to(device_);
  const Tensor doubled = mul(x, 2.0);
  x = {};
  const Tensor there = Upload(numbers(100'000, 7.0f), device_).take();
  EXPECT_TRUE(same_bits(there.to(Device{}), numbers(100'000, 7.0f)));
  EXPECT_TRUE(same_bits(doubled.to(Device{}), mul(numbers(100'000, 0.0f), 2.0)));
}

// A kernel that reuses the memory of a dropped upload runs after the copy, which would otherwise overwrite its result.
TEST_P(Transfer, ADroppedUploadDoesNotOverwriteWhatLaterCallsWrite) {
  const Tensor x = numbers(100'000, 0.0f).to(device_);
  { const Upload dropped(numbers(100'000, 7.0f), device_); }
  const Tensor doubled = mul(x, 2.0);
  const Tensor expected = mul(numbers(100'000, 0.0f), 2.0);
  EXPECT_TRUE(same_bits(doubled.to(Device{}), expected));
  const Tensor last = Upload(numbers(100'000, 5.0f), device_).take();  // the copy before it is done by then
  EXPECT_TRUE(same_bits(last.to(Device{}), numbers(100'000, 5.0f)));
  EXPECT_TRUE(same_bits(doubled.to(Device{}), expected));
}

// A copy may still write to the page-locked memory of a dropped download: nobody gets this memory before it is done.
TEST_P(Transfer, ADroppedDownloadWritesToNobodysMemory) {
  for (int i = 0; i < 20; ++i) {
    const Tensor x = numbers(5000, static_cast<float>(i)).to(device_);
    { const Download dropped(mul(x, 2.0)); }
    Tensor locked = page_locked({5000}, DType::f32, device_);
    const Tensor plain = numbers(5000, static_cast<float>(-i));
    std::copy_n(plain.data<float>(), 5000, static_cast<float*>(locked.raw()));
    EXPECT_TRUE(same_bits(add(x, 1.0).to(Device{}), numbers(5000, static_cast<float>(i + 1))));
    EXPECT_TRUE(same_bits(locked, plain)) << i;
  }
}

// synchronize() waits for what the stream waits for, too.
TEST_P(Transfer, SynchronizingWaitsForQueuedWork) {
  on(device_, [&](auto& stream) {
    if constexpr (!std::is_same_v<decltype(stream), CpuStream&>) {
      const Tensor doubled = mul(numbers(100'000, 0.0f).to(device_), 2.0);
      Tensor here = page_locked({100'000}, DType::f32, device_);
      std::unique_ptr<CopyUnderWay> copy = begin_download(stream, here.raw(), std::as_const(doubled).raw(),
                                                          static_cast<size_t>(doubled.bytes()), Mark());
      copy->before_the_rest();
      stream.synchronize();
      EXPECT_TRUE(same_bits(here, mul(numbers(100'000, 0.0f), 2.0)));
    }
  });
}

TEST_P(Transfer, ManySmallTensorsKeepApart) {
  std::vector<Upload> sent;
  for (int i = 0; i < 200; ++i) sent.emplace_back(numbers(i % 17, static_cast<float>(i)), device_);
  std::vector<Download> back;
  for (const Upload& upload : sent) back.emplace_back(mul(upload.take(), 0.5));
  for (int i = 0; i < 200; ++i)
    EXPECT_TRUE(same_bits(back[static_cast<size_t>(i)].wait(), mul(numbers(i % 17, static_cast<float>(i)), 0.5))) << i;
}

TEST_P(Transfer, BatchesAreSentAheadAndAreTheSame) {
  DataConfig config;
  config.kind = "synthetic";
  config.size = 40;
  config.classes = 3;
  config.image_size = 4;
  const std::shared_ptr<const Dataset> data = open_dataset(config, Split::train);
  LoaderOptions options{.seed = 3, .global_batch = 12, .virtual_ranks = 2};
  Loader plain(data, options);
  options.device = device_;
  Loader ahead(data, options);
  for (int64_t step = 0; step < 8; ++step)
    for (int vrank = 0; vrank < 2; ++vrank) {
      const Batch expected = plain.batch(step, vrank), batch = ahead.batch(step, vrank);
      EXPECT_TRUE(same_bits(batch.input, expected.input));
      EXPECT_TRUE(same_bits(batch.input_on(device_).to(Device{}), expected.input));
    }
  // A batch that was changed since is sent in its present form.
  Batch batch = ahead.batch(8, 0);
  batch.input = mul(batch.input, 2.0);
  EXPECT_TRUE(same_bits(batch.input_on(device_).to(Device{}), mul(plain.batch(8, 0).input, 2.0)));
}

#ifdef ELINVAR_EMULATION
TEST(TransferDeathTest, WritingToWhatIsOnItsWayIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Device emulated{DeviceKind::emulated};
  EXPECT_DEATH(
      {
        Tensor x = numbers(10, 0.0f);
        const Upload sent(x, emulated);
        x.data<float>()[3] = 7.0f;
        sent.take();
      },
      "on its way");
}
#endif

}  // namespace
}  // namespace elinvar
