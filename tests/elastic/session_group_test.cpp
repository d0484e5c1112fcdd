// Sessions whose virtual shards' values go from GPU to GPU (PROTOCOL.md, "Groups of GPUs"): emulated ones, in threads.
// The test plays their coordinator and their network.
#include <gtest/gtest.h>

#ifdef ELINVAR_EMULATION

#include <atomic>
#include <barrier>
#include <functional>
#include <thread>

#include "tests/elastic/session_stage.h"
#include "tests/emulation/nccl.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;
using emulation::NcclFault;
using test::Stage;

constexpr Device kGpu{DeviceKind::emulated};

std::vector<std::shared_ptr<Nccl>> nccl_of(const std::vector<NcclFault>& faults) {
  std::vector<std::shared_ptr<Nccl>> nccl;
  for (const NcclFault& fault : faults) nccl.push_back(emulation::nccl(fault));
  return nccl;
}

// Makes a step, which may begin several times.
void make_step(Session& session, int64_t elements) {
  while (session.begin()) {
    try {
      while (Session::Task* const task = session.next()) test::compute(*task, kGpu, elements);
    } catch (const Session::StepOver&) {
      session.give_up();
    }
    const Reduced* const reduced = session.reduce();
    if (reduced == nullptr) continue;
    EXPECT_EQ(reduced->gradients.at(3).to(Device{}).span<float>()[1], 6.0f);
    return session.advance({});
  }
}

// All members make steps until `enough` holds after one. Returns the number of steps, or 0 if it never does.
int64_t train(Stage& stage, const std::function<bool()>& enough, int64_t elements = 4) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  bool over = false;
  int64_t steps = 0;
  std::barrier all(stage.members(), [&]() noexcept {
    ++steps;
    const bool late = std::chrono::steady_clock::now() > deadline;
    if (late) steps = 0;
    over = late || enough();
  });
  std::vector<std::jthread> threads;
  for (int m = 0; m < stage.members(); ++m)
    threads.emplace_back([&, m] {
      while (!over) {
        make_step(*stage.sessions[static_cast<size_t>(m)], elements);
        all.arrive_and_wait();
      }
    });
  threads.clear();
  return steps;
}

// Whether the last step's values did not go by messages.
std::function<bool()> are_in_group(Stage& stage) {
  return [&stage, before = int64_t{0}]() mutable {
    const int64_t now = stage.wires.count("within");
    return std::exchange(before, now) == now;
  };
}

TEST(SessionGroup, ValuesGoFromGpuToGpuOnceAllAreInTheGroup) {
  for (const auto& [members, elements] : {std::pair{2, 4}, {3, 4}, {3, 3 * (1 << 14) + 5}}) {
    Stage stage(members, nccl_of(std::vector<NcclFault>(static_cast<size_t>(members))));
    const std::jthread coordinator([&] { stage.start(); });
    EXPECT_GT(train(stage, are_in_group(stage), elements), 1);
    EXPECT_EQ(stage.wires.count("group_used"), 1);
    EXPECT_GT(stage.wires.count("roots"), 0) << "gradients go so, too";
  }
}

TEST(SessionGroup, WithoutAGroupTheyGoByMessages) {
  NcclFault fails;
  fails.init_fails = true;
  Stage stage(2, nccl_of({{}, fails}));
  const std::jthread coordinator([&] { stage.start(); });
  EXPECT_GT(train(stage, [&] { return stage.wires.count("group_missing") > 0; }), 0);
  EXPECT_EQ(stage.wires.count("group_used"), 0);
}

// The transfer is aborted, and the step begins anew.
TEST(SessionGroup, AMemberThatIsGoneLeavesTheOthersFree) {
  Stage stage(2, nccl_of({{}, {}}));
  std::jthread coordinator([&] { stage.start(); });
  const int64_t steps = train(stage, are_in_group(stage));
  ASSERT_GT(steps, 0);
  coordinator = std::jthread([&] {
    std::this_thread::sleep_for(50ms);  // the first member waits for the second, which is as good as gone
    stage.go_on_with(/*members=*/1, steps);
  });
  make_step(*stage.sessions[0], 4);
  EXPECT_EQ(stage.sessions[0]->step().number, steps);
}

// A member reports a failed transfer. One that hangs is reported after some time, in which nobody is taken to be busy.
TEST(SessionGroup, FailedTransfersAreReportedAndMadeUpForByMessages) {
  for (const bool hangs : {false, true}) {
    NcclFault fault;
    // In each step four transfers of values are followed by two for each of four buckets: this is one of values.
    (hangs ? fault.transfer_hangs : fault.transfer_fails) = 14;
    Stage stage(2, nccl_of({{}, fault}), 300ms);
    std::atomic<bool> mended = false;
    const std::jthread coordinator([&] {
      stage.start();
      EXPECT_TRUE(stage.heard("group_failed", 1));
      stage.grouped = false;
      stage.go_on_with(/*members=*/2, stage.heard_at);
      mended = true;
    });
    int left = 2;
    EXPECT_GT(train(stage, [&] { return mended && --left == 0; }), 2);
  }
}

}  // namespace
}  // namespace elinvar

#endif
