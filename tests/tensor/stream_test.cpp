#include "tensor/stream.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

TEST(Stream, CoversEveryItemOnce) {
  for (int threads : {1, 2, 3, 5}) {
    CpuStream stream(threads);
    EXPECT_EQ(stream.threads(), threads);
    for (int64_t n : {0, 1, 2, 3, 7, 64, 1001}) {
      for (int64_t grain : {1, 3, 64, 5000}) {
        std::vector<int> hits(static_cast<size_t>(n), 0);
        std::atomic<int> calls{0};
        stream.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          ++calls;
          EXPECT_LT(begin, end);
          if (n >= grain) {
            EXPECT_GE(end - begin, grain);
          }
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        EXPECT_EQ(std::count(hits.begin(), hits.end(), 1), n)
            << n << " items, grain " << grain << ", " << threads << " threads";
        EXPECT_LE(calls, threads);
      }
    }
  }
}

TEST(Stream, ManyShortTasksInARow) {
  CpuStream stream(3);
  std::vector<int64_t> sums(3000, 0);
  for (int round = 0; round < 2000; ++round)
    stream.parallel_for(3000, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[static_cast<size_t>(i)] += i;
    });
  for (int64_t i = 0; i < 3000; ++i) ASSERT_EQ(sums[static_cast<size_t>(i)], 2000 * i);
}

TEST(Stream, HelpersThatSleptWakeUp) {
  CpuStream stream(2);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int64_t> sum{0};
    stream.parallel_for(2, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Returns the processors that each thread of the team may use, while all of them run; `caller` is the caller's
// processor.
std::vector<cpu_set_t> processors_of(CpuStream& stream, int& caller) {
  std::vector<cpu_set_t> masks(static_cast<size_t>(stream.threads()));
  std::atomic<int> here{0};
  stream.parallel_for(stream.threads(), 1, [&](int64_t begin, int64_t) {
    if (begin == 0) caller = sched_getcpu();
    if (sched_getaffinity(0, sizeof(cpu_set_t), &masks[static_cast<size_t>(begin)]) != 0) std::abort();
    for (++here; here < stream.threads();) std::this_thread::yield();
  });
  return masks;
}

TEST(Stream, HelpersKeepOffTheirCallersProcessor) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  if (CPU_COUNT(&usable) < 2) GTEST_SKIP() << "one processor";
  CpuStream stream(2);
  bool kept_off = false;  // at least once: the system may move the caller meanwhile
  for (int round = 0; round < 100 && !kept_off; ++round) {
    int caller = 0;
    std::vector<cpu_set_t> masks = processors_of(stream, caller);
    EXPECT_TRUE(CPU_EQUAL(&masks[0], &usable));
    kept_off = !CPU_ISSET(caller, &masks[1]);
    CPU_SET(caller, &masks[1]);
    kept_off = kept_off && CPU_EQUAL(&masks[1], &usable);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(kept_off);
}

TEST(Stream, MoreHelpersThanOtherProcessorsUseAll) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  CpuStream stream(CPU_COUNT(&usable) + 1);
  int caller = 0;
  for (const cpu_set_t& mask : processors_of(stream, caller)) EXPECT_TRUE(CPU_EQUAL(&mask, &usable));
}

TEST(Stream, ANestedCallRunsInItsThread) {
  CpuStream stream(3);
  std::atomic<int64_t> sum{0};
  stream.parallel_for(3, 1, [&](int64_t begin, int64_t end) {
    const std::thread::id outer = std::this_thread::get_id();
    for (int64_t i = begin; i < end; ++i)
      stream.parallel_for(100, 1, [&](int64_t b, int64_t e) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
        sum += e - b;
      });
  });
  EXPECT_EQ(sum, 300);
}

TEST(Stream, EqualRangesGoToTheSameThreads) {
  CpuStream stream(3);
  std::vector<std::thread::id> first(3), again(3);
  const auto note = [&](std::vector<std::thread::id>& who) {
    std::atomic<int> here{0};  // no thread is late: the caller waits for all to start
    stream.parallel_for(3, 1, [&](int64_t begin, int64_t) {
      who[static_cast<size_t>(begin)] = std::this_thread::get_id();
      for (++here; here < 3;) std::this_thread::yield();
    });
  };
  note(first);
  note(again);
  EXPECT_EQ(first, again);
  EXPECT_EQ(first[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(first.begin(), first.end()).size(), 3u);
}

TEST(Stream, SeveralCallersShareATeam) {
  CpuStream stream(2);
  std::atomic<int64_t> sum{0};
  {
    std::vector<std::jthread> callers;
    for (int c = 0; c < 3; ++c)
      callers.emplace_back([&] {
        for (int round = 0; round < 200; ++round)
          stream.parallel_for(10, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
      });
  }
  EXPECT_EQ(sum, 3 * 200 * 10);
}

TEST(Stream, AScopeReplacesTheStreamOfItsThreadOnly) {
  CpuStream mine(1);
  CpuStream* before = &cpu_stream();
  {
    const StreamScope scope(mine);
    EXPECT_EQ(&cpu_stream(), &mine);
    std::jthread([&] { EXPECT_EQ(&cpu_stream(), before); });
  }
  EXPECT_EQ(&cpu_stream(), before);
}

TEST(Stream, SetThreads) {
  const int before = cpu_stream().threads();
  set_threads(3);
  EXPECT_EQ(cpu_stream().threads(), 3);
  set_threads(before);
  EXPECT_THROW(CpuStream(0), UsageError);
  EXPECT_THROW(set_threads(-1), UsageError);
}

TEST(Stream, AnExceptionArrivesOnceAllPartsAreDone) {
  for (int threads : {1, 2, 3}) {
    CpuStream stream(threads);
    for (int64_t thrower = 0; thrower < 3; ++thrower) {
      std::atomic<int64_t> done{0};
      const auto body = [&](int64_t begin, int64_t end) {
        if (begin <= thrower && thrower < end) fail("item {}", thrower);
        done += end - begin;
      };
      EXPECT_THROW(stream.parallel_for(3, 1, body), Failure) << threads << " threads, item " << thrower;
      EXPECT_EQ(done, threads == 3 ? 2 : threads == 2 ? (thrower == 0 ? 2 : 1) : 0);
    }
    EXPECT_THROW(stream.parallel_for(3, 1, [](int64_t, int64_t) { throw 1; }), int);
    std::atomic<int64_t> sum{0};
    stream.parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 100);
  }
}

TEST(Stream, AnExceptionOfANestedCallArrivesToo) {
  CpuStream stream(2);
  const auto body = [&](int64_t, int64_t) { stream.parallel_for(9, 1, [](int64_t, int64_t) { fail("inner"); }); };
  EXPECT_THROW(stream.parallel_for(2, 1, body), Failure);
  EXPECT_THROW(stream.parallel_for(2, 1, body), Failure);
}

// Sanitizers need additional address space.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(StreamDeathTest, ThreadsThatCannotStartAreAFailure) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        rlimit limit;
        limit.rlim_cur = limit.rlim_max = rlim_t{1} << 30;
        setrlimit(RLIMIT_AS, &limit);
        try {
          CpuStream stream(1024);
        } catch (const Failure& e) {
          fmt::print(stderr, "{}", e.what());
          std::exit(0);
        }
        std::exit(1);
      },
      testing::ExitedWithCode(0), "cannot start another thread .team.: ");
}
#endif

}  // namespace
}  // namespace elinvar
