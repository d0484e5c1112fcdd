// Back-off of jobs and hosts.
#include "tools/pool/daemon/host_backoff.h"

#include <gtest/gtest.h>

#include "tools/pool/daemon/backoff.h"

namespace elinvar::pool {
namespace {

TEST(PoolBackoff, DoublesUpToFiveMinutes) {
  EXPECT_EQ(backoff_seconds(1), 2);
  EXPECT_EQ(backoff_seconds(2), 4);
  EXPECT_EQ(backoff_seconds(8), 256);
  EXPECT_EQ(backoff_seconds(9), 300);
  EXPECT_EQ(backoff_seconds(1000000), 300);
}

TEST(PoolHostBackoff, WaitsLongerAfterEachFailureAndForgetsThemAllAtOnce) {
  HostBackoff backoff;
  EXPECT_FALSE(backoff.waiting("a", 0));
  EXPECT_EQ(backoff.failed("a", 7, 100), 2);
  EXPECT_TRUE(backoff.waiting("a", 101.9));
  EXPECT_FALSE(backoff.waiting("a", 102));
  EXPECT_FALSE(backoff.waiting("b", 101));
  EXPECT_TRUE(backoff.failed_for("a", 7));
  EXPECT_FALSE(backoff.failed_for("a", 8));
  EXPECT_EQ(backoff.failed("a", 8, 110), 4);
  EXPECT_FALSE(backoff.excluded("a", 111)) << "two failures are no pattern";
  EXPECT_EQ(backoff.failed("a", 7, 120), 8);
  EXPECT_TRUE(backoff.excluded("a", 121));
  EXPECT_FALSE(backoff.excluded("a", 128)) << "it is tried again";
  backoff.recovered("a");
  EXPECT_FALSE(backoff.waiting("a", 121));
  EXPECT_EQ(backoff.failed("a", 7, 130), 2);
}

}  // namespace
}  // namespace elinvar::pool
