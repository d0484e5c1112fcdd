#include "tools/training/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

namespace elinvar {
namespace {

TEST(Progress, RatesAreReadable) {
  EXPECT_EQ(rate_text(0, "samples"), "0 samples/s");
  EXPECT_EQ(rate_text(187.32, "samples"), "187.3 samples/s");
  EXPECT_EQ(rate_text(2870.4, "tokens"), "2870 tokens/s");
  EXPECT_EQ(rate_text(9999.6, "tokens"), "10 k tokens/s");
  EXPECT_EQ(rate_text(110400, "tokens"), "110.4 k tokens/s");
  EXPECT_EQ(rate_text(12.3e6, "tokens"), "12.3 M tokens/s");
}

// The numbers are those of a worker's message.
TEST(Progress, ShowsAnyEvaluation) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(child, 0);
  if (child == 0) {
    Progress progress(0, 10, 1, "samples");
    for (const int64_t parts : {int64_t{3}, int64_t{0}, int64_t{-3}, INT64_MAX})
      for (const int64_t part : {int64_t{1}, int64_t{3}, int64_t{-7}, INT64_MAX, INT64_MIN})
        progress.evaluation(part, parts, 1);
    ::_exit(0);
  }
  char bytes[4096];
  while (::read(terminal, bytes, sizeof bytes) > 0) continue;
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(terminal);
}

}  // namespace
}  // namespace elinvar
