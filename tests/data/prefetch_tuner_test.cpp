// The number of readers that make batches ahead follows from the time spent waiting for batches.
#include "data/prefetch_tuner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "data/loader.h"
#include "tensor/base/threads.h"
#include "tests/data/endless.h"

namespace elinvar {
namespace {

// Simulates a loop that computes one second per batch; one reader makes a batch in `read` seconds, up to `cores` of
// them in parallel.
int readers_after(double read, int cores, int most, std::string* said = nullptr) {
  PrefetchTuner tuner({1, 4}, most);
  int threads = 1;
  for (int i = 0; i < 1000; ++i) {
    const double batch = std::max(1.0, read / std::min(threads, cores));
    if (const std::optional<PrefetchSettings> next = tuner.record(batch - 1, batch)) {
      threads = next->threads;
      EXPECT_GE(next->prefetch, 4);
      if (said != nullptr) *said += tuner.reason() + "\n";
    }
  }
  return threads;
}

TEST(PrefetchTuner, AddsReadersAsLongAsTheyHelp) {
  EXPECT_EQ(readers_after(0.9, 8, 16), 1) << "nobody waits";
  EXPECT_EQ(readers_after(1.04, 8, 16), 1) << "next to nobody waits";
  EXPECT_EQ(readers_after(2.5, 8, 16), 3);
  EXPECT_EQ(readers_after(2.5, 8, 2), 2) << "more are not allowed";
  std::string said;
  EXPECT_EQ(readers_after(3.5, 2, 16, &said), 2) << "a third finds no core";
  EXPECT_NE(said.find("71 % of the time goes by waiting for data: 2 readers"), std::string::npos) << said;
  EXPECT_NE(said.find("3 readers are no faster than 2"), std::string::npos) << said;
}

TEST(PrefetchTuner, LooksForAWhileFirst) {
  PrefetchTuner tuner({1, 4}, 4);
  for (int i = 0; i < 15; ++i) EXPECT_FALSE(tuner.record(1, 1)) << "too few batches";
  EXPECT_TRUE(tuner.record(1, 1));
  PrefetchTuner fast({1, 4}, 4);
  for (int i = 0; i < 290; ++i) EXPECT_FALSE(fast.record(0.01, 0.01)) << "too short";
}

// Reading a sample takes a millisecond and no processor time.
class Slow final : public test::Endless {
  void reads(int64_t) const override { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
};

TEST(Loader, TriesMoreReadersWhereDataAreWaitedForAndTheBatchesStay) {
  if (usable_threads() < 2) GTEST_SKIP() << "there is one core";
  Loader loader(std::make_shared<Slow>(), {.global_batch = 10, .shuffle = false, .threads = 1, .tuned = true});
  std::string news;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int64_t step = 0;
  for (; news.empty() && std::chrono::steady_clock::now() < end; ++step) {
    ASSERT_EQ(loader.batch(step, 0).target.data<int64_t>()[9], 10 * step + 9);
    news = loader.news();
  }
  EXPECT_NE(news.find("2 readers"), std::string::npos) << news;
  EXPECT_EQ(loader.news(), "") << "once";
  for (const int64_t to = step + 30; step < to; ++step)
    ASSERT_EQ(loader.batch(step, 0).target.data<int64_t>()[9], 10 * step + 9);
}

}  // namespace
}  // namespace elinvar
