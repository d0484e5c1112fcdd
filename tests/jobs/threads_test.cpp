// Failures to start a thread, and threads that run out of memory.
#include "tensor/base/threads.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/jobs/small_job.h"
#include "tests/jobs/train_process.h"
#include "tests/places.h"
#include "tools/cli/program_beside.h"

namespace elinvar {
namespace {

TEST(Threads, HaveTheirNameAndMayHeedAToken) {
  std::string name(16, '\0');
  start_thread("a name", [&] { pthread_getname_np(pthread_self(), name.data(), name.size()); }).join();
  EXPECT_STREQ(name.c_str(), "a name");
  bool stopped = false;
  {
    const std::jthread waits = start_thread("waits", [&](const std::stop_token& stop) {
      while (!stop.stop_requested()) std::this_thread::yield();
      stopped = true;
    });
  }
  EXPECT_TRUE(stopped);
  check_threads_left(3, "three");
}

TEST(ThreadsDeathTest, WhatEscapesABodyEndsTheProcessInWords) {
  const auto run = [](void (*body)()) { start_thread("breaks", body).join(); };
  EXPECT_EXIT(run([] { throw std::bad_alloc(); }), testing::ExitedWithCode(3), "job_tests: out of memory");
  EXPECT_EXIT(run([] { fail("the disk is full"); }), testing::ExitedWithCode(3), "job_tests: the disk is full");
  EXPECT_EXIT(run([] { throw 7; }), testing::ExitedWithCode(3), "job_tests: an unknown error");
}

class ThreadLimit : public testing::Test, protected test::TrainRuns {};

// Coordinator and worker may have no further thread, then one, and so on, until that is enough: every thread that they
// start fails once.
TEST_F(ThreadLimit, EachThreadThatCannotBeStartedEndsTheRunInWords) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has the place of pthread_create";
#endif
  const std::string library = program_beside("libthread_limit.so");
  ASSERT_TRUE(std::filesystem::exists(library)) << library;
  folder_.write("job.toml", test::text_of({.steps = 20, .checkpoint_every = 10}));
  ASSERT_EQ(wait(spawn({"keygen", folder_ / "key"}, "keygen"), "keygen").code, 0);
  int limit = 0, code = 3;
  for (; code == 3 && limit < 40; ++limit) {
    const std::string name = fmt::format("run{}", limit);
    const pid_t job = spawn({"run", folder_ / "job.toml", "--run-dir", folder_ / name, "--threads", "3", "--key",
                             folder_ / "key", "--metrics-port", "0"},
                            name, {"env", "LD_PRELOAD=" + library, fmt::format("THREAD_LIMIT={}", limit)});
    const test::Ended ended = wait(job, name, std::chrono::seconds(60));
    code = ended.code;
    const bool told = ended.err.find("cannot start another thread") != std::string::npos;
    EXPECT_TRUE(told || code == 0) << limit << ended.err;
    EXPECT_EQ(ended.err.find("terminate"), std::string::npos) << ended.err;
    EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "") << limit;
  }
  EXPECT_EQ(code, 0) << "with a limit of " << limit - 1 << read_file(folder_ / fmt::format("run{}.err", limit - 1));
  EXPECT_GT(limit, 10);
  // Readers of data only affect speed.
  std::vector<std::string> eval = {"eval", folder_ / fmt::format("run{}", limit - 1), "--threads", "1"};
  const test::Ended free = wait(spawn(eval, "free"), "free");
  const test::Ended alone = wait(spawn(eval, "alone", {"env", "LD_PRELOAD=" + library, "THREAD_LIMIT=0"}), "alone");
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.out, free.out);
}

}  // namespace
}  // namespace elinvar
