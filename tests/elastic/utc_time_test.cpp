#include "elastic/ledger/utc_time.h"

#include <gtest/gtest.h>

#include <chrono>

namespace elinvar {
namespace {

TEST(UtcTime, ReadsWhatItWrites) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::optional<double> read = seconds_of_utc(utc_now(/*ago=*/100));
  ASSERT_TRUE(read.has_value());
  EXPECT_NEAR(*read, now - 100, 1);  // the clock is read twice; a busy machine may take long between
}

TEST(UtcTime, ReadsFractionsAndRefusesOtherText) {
  EXPECT_EQ(seconds_of_utc("1970-01-02T00:00:01Z"), 86401);
  EXPECT_DOUBLE_EQ(seconds_of_utc("2026-05-04T10:11:12.345Z").value(), 1777889472.345);
  for (const char* text : {"", "10:11:12", "2026-05-04", "2026-13-04T10:11:12Z", "yesterday"})
    EXPECT_FALSE(seconds_of_utc(text).has_value()) << text;
}

}  // namespace
}  // namespace elinvar
