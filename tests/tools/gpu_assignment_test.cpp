// The GPUs of a machine and the workers that `train run` starts there.
#include "tools/training/gpu_assignment.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

std::function<int()> gpus(int count) {
  return [count] { return count; };
}

TEST(GpuAssignment, NobodyAsksTheDriverForWhatDoesNotMatter) {
  const auto never = []() -> int {
    ADD_FAILURE() << "the driver was started";
    return 0;
  };
  EXPECT_EQ(GpuAssignment("cpu", 4, never).next({}), "cpu");
  EXPECT_EQ(GpuAssignment("cuda:1", 4, never).next({}), "cuda:1");
  const GpuAssignment others_start("cuda", 0, never), nobody_yet("auto", 4, never);
}

TEST(GpuAssignment, EachWorkerGetsItsOwnAndWhoComesForOneThatDiedItsGpu) {
  GpuAssignment assignment("cuda", 3, gpus(3));
  std::set<pid_t> alive;
  const auto start = [&](pid_t pid) {
    const std::string device = assignment.next(alive);
    assignment.given_to(pid);
    alive.insert(pid);
    return device;
  };
  EXPECT_EQ(start(10), "cuda:0");
  EXPECT_EQ(start(11), "cuda:1");
  EXPECT_EQ(start(12), "cuda:2");
  alive.erase(11);
  EXPECT_EQ(start(13), "cuda:1");
  // With more workers than GPUs, as train ctl scale may request, workers share.
  EXPECT_EQ(start(14), "cuda:0");
  EXPECT_EQ(start(15), "cuda:1");
  alive = {12, 14, 15};
  EXPECT_EQ(start(16), "cuda:0");
}

TEST(GpuAssignment, AutoTakesTheGpusThatThereAre) {
  GpuAssignment none("auto", 4, gpus(0)), one("auto", 4, gpus(1));
  EXPECT_EQ(none.next({}), "auto");
  EXPECT_EQ(one.next({}), "cuda:0");
  one.given_to(7);
  EXPECT_EQ(one.next({7}), "cuda:0");
}

TEST(GpuAssignment, AnyOtherWordIsForAll) {
  GpuAssignment assignment("cuda:1", 4, gpus(2));
  assignment.given_to(7);
  EXPECT_EQ(assignment.next({7}), "cuda:1");
  EXPECT_EQ(GpuAssignment("cpu", 4, gpus(2)).next({}), "cpu");
}

TEST(GpuAssignment, MoreWorkersThanGpusAreRefused) {
  EXPECT_EQ(test::message_of<UsageError>([] { GpuAssignment("cuda", 4, gpus(2)); }),
            "--workers 4 --device cuda: each worker gets a GPU of its own, and this machine has 2; start at most 2, or "
            "let all share one with --device cuda:0");
}

}  // namespace
}  // namespace elinvar
