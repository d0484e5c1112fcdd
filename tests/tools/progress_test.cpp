#include "tools/training/progress.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace elinvar
