// Inputs of recomputed blocks in files and in the host's memory: the same bits, and less memory.
#include "nn/input_store.h"

#include <gtest/gtest.h>

#include "nn/stage.h"
#include "tensor/allocator.h"
#include "tests/models/segment_cases.h"
#include "tests/support/bits.h"
#include "tests/support/disk_faults.h"
#include "tests/support/temporary_folder.h"
#ifdef ELINVAR_EMULATION
#include "tests/emulation/traffic.h"
#endif

namespace elinvar {
namespace {

using test::same_bits;
using To = Offload::To;

CutCase deep_gpt() {
  return {.name = "gpt",
          .kind = "gpt",
          .settings = {{"layers", int64_t{8}}, {"heads", int64_t{4}}, {"channels", int64_t{64}}, {"dropout", 0.1}},
          .tokens = true};
}

TEST(InputStore, GivesBackWhatItGot) {
  const test::TemporaryFolder folder;
  InputStore store({.to = To::file, .folder = folder.path()});
  std::vector<std::function<Tensor()>> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(store.put(Tensor::full({5, 3}, i)));
  kept.erase(kept.begin());  // one is dropped
  const Tensor second = kept[0](), third = kept[1]();
  kept.clear();
  (void)store.put(Tensor::full({5, 3}, 7));  // in the first one's file
  for (const auto& [tensor, value] : {std::pair(second, 1), {third, 2}}) {
    EXPECT_EQ(tensor.shape(), Shape({5, 3}));
    EXPECT_TRUE(same_bits(tensor, Tensor::full({5, 3}, value)));
  }
  EXPECT_EQ(test::entries(folder.path()), 0u);
}

TEST(InputStore, MaySurviveByItsTensors) {
  const test::TemporaryFolder folder;
  auto store = std::make_unique<InputStore>(Offload{.to = To::file, .folder = folder.path()});
  const Tensor kept = store->put(Tensor::full({4}, 3))();
  store.reset();
  EXPECT_TRUE(same_bits(kept, Tensor::full({4}, 3)));
}

// Without the store, the input of each of eight blocks stays in memory.
TEST(InputStore, APassHoldsNoInputs) {
  const CutNetwork gpt(deep_gpt());
  const test::TemporaryFolder folder;
  CpuStream one(1);
  const StreamScope scope(one);
  HostAllocator& allocator = HostAllocator::instance();
  const auto held = [&](const Recompute& recompute, size_t cut) {
    const int64_t before = allocator.stats().in_use;
    const SegmentPasses passes(gpt.segmented(), {0, cut}, {gpt.input.first, {.seed = 1}}, Targets(gpt.target), {},
                               {.recompute = recompute});
    return allocator.stats().in_use - before;
  };
  InputStore store({.to = To::file, .folder = folder.path()});
  const int64_t input = gpt.input.first.numel() * 64 * 4;
  for (const size_t blocks : {4, 8}) {
    const int64_t with = held(true, 1 + blocks), without = held({true, &store}, 1 + blocks);
    EXPECT_GE(with - without, static_cast<int64_t>(blocks) * input) << blocks;
    EXPECT_LT(without, 3 * input) << "what the stage gives";
  }
}

#ifdef ELINVAR_EMULATION

TEST(InputStore, InputsOnAGpuLeaveAndComeBack) {
  constexpr Device kGpu{DeviceKind::emulated};
  const test::TemporaryFolder folder;
  const CutNetwork on_cpu(deep_gpt()), gpt(deep_gpt());
  gpt.network->parameters.move_to(kGpu);
  const MicroBatchResult expected =
      micro_batch_gradient(*on_cpu.network, on_cpu.input, Targets(on_cpu.target), {}, {.seed = 1});
  const Tensor input = gpt.input.first.to(kGpu);
  const auto expect_same = [&](const Recompute& recompute) {
    const MicroBatchResult result =
        micro_batch_gradient(*gpt.network, input, Targets(gpt.target), {}, {.seed = 1}, recompute);
    EXPECT_EQ(result.loss_sum, expected.loss_sum);
    for (size_t i = 0; i < expected.gradients.size(); ++i)
      EXPECT_TRUE(same_bits(result.gradients[i].to(Device{}), expected.gradients[i]))
          << gpt.network->parameters.list[i].name;
  };
  const auto held = [&](const Recompute& recompute, size_t blocks) {
    const int64_t before = emulation::in_use;
    const SegmentPasses passes(gpt.segmented(), {0, 1 + blocks}, {input, {.seed = 1}}, Targets(gpt.target), {},
                               {.recompute = recompute});
    return emulation::in_use - before;
  };
  const int64_t bytes = gpt.input.first.numel() * 64 * 4;
  EXPECT_GE(held(true, 8) - held(true, 4), 4 * bytes);
  for (const To to : {To::host, To::file}) {
    InputStore store({.to = to, .folder = folder.path()});
    expect_same({true, &store});
    EXPECT_EQ(held({true, &store}, 8), held({true, &store}, 4)) << "two of them, and what the stage gives";
  }
}

#endif

}  // namespace
}  // namespace elinvar
