#include "elastic/step/arrangement_forecasts.h"

#include <gtest/gtest.h>

#include "comm/fields.h"
#include "elastic/step/model_replicas.h"

namespace elinvar {
namespace {

const Arrangement kPlain, kTogether{.tp = 2}, kDivided{.zero = 2, .copies = 1};

// For at most three workers. With two, kTogether is the fastest that fits, and plain data parallelism does not fit.
ArrangementForecasts forecasts() {
  return {.of_workers = {{{kPlain, 10}}, {{kTogether, 4}, {kDivided, 5}, {kPlain, 3, false}}, {{kPlain, 2, false}}},
          .change = 20};
}

TEST(ArrangementForecasts, ABetterArrangementIsTakenIfItPays) {
  const auto chosen = [](int64_t steps) { return better_arrangement(forecasts(), 2, kDivided, steps); };
  ASSERT_TRUE(chosen(21));
  EXPECT_EQ(chosen(21)->arrangement, kTogether);
  EXPECT_EQ(chosen(21)->reason, "a step with 2 workers is predicted to take 80 % of the time");
  EXPECT_FALSE(chosen(20)) << "the change takes as long as is gained";
  EXPECT_FALSE(better_arrangement(forecasts(), 2, kTogether, 1000));
}

TEST(ArrangementForecasts, ASmallGainIsNone) {
  for (const double best : {0.94, 0.96}) {
    const ArrangementForecasts two{.of_workers = {{}, {{kTogether, best}, {kPlain, 1}}}, .change = 0};
    EXPECT_EQ(better_arrangement(two, 2, kPlain, 1000).has_value(), best < 0.95);
  }
}

TEST(ArrangementForecasts, OneThatDoesNotFitIsLeftAtOnce) {
  const auto chosen = better_arrangement(forecasts(), 2, kPlain, 1);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->arrangement, kTogether);
  EXPECT_EQ(chosen->reason, "with 2 workers, zero=0 does not fit into their memory");
}

TEST(ArrangementForecasts, WithoutForecastsNothingIsBetter) {
  EXPECT_FALSE(better_arrangement(forecasts(), 3, kTogether, 1000)) << "none fits";
  EXPECT_FALSE(better_arrangement(forecasts(), 4, kDivided, 1000)) << "so many workers were not expected";
  EXPECT_FALSE(better_arrangement({}, 1, kPlain, 1000));
}

TEST(ArrangementForecasts, UnknownOnesGiveWay) {
  const auto chosen = better_arrangement(forecasts(), 2, {.zero = 2, .copies = 5}, 1);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->reason, "predicted to be the fastest with 2 workers");
}

// A job keeps the limits of its replicas while it has too few workers for them.
TEST(ArrangementForecasts, AnArrangementForMoreWorkersIsThatOfThoseThatAreThere) {
  EXPECT_FALSE(better_arrangement(forecasts(), 2, {.tp = 3}, 1000)) << "two workers compute together in both";
  EXPECT_FALSE(better_arrangement(forecasts(), 1, {.zero = 1, .copies = 1, .tp = 2, .pp = 3}, 1000));
}

TEST(ArrangementForecasts, AreWrittenAndRead) {
  EXPECT_EQ(read_fields<ArrangementForecasts>(write_fields(forecasts())), forecasts());
}

TEST(SimplifiedArrangement, HasTheLimitsThatWorkersReach) {
  const auto simple = [](int tp, int pp, int workers) { return simplified({.tp = tp, .pp = pp}, workers); };
  EXPECT_EQ(simple(3, 1, 8), (Arrangement{.tp = 3})) << "replicas of three, three and two";
  EXPECT_EQ(simple(5, 1, 8), (Arrangement{.tp = 4})) << "two replicas of four";
  EXPECT_EQ(simple(2, 2, 3), (Arrangement{.tp = 2, .pp = 2})) << "stages of two and one";
  EXPECT_EQ(simple(2, 2, 2), (Arrangement{.pp = 2}));
  EXPECT_EQ(simple(4, 4, 1), Arrangement{});
  EXPECT_EQ(simplified({.zero = 3, .copies = 1}, 1), Arrangement{});
  EXPECT_EQ(simplified({.zero = 3, .copies = 1}, 2), (Arrangement{.zero = 3, .copies = 1}));
}

}  // namespace
}  // namespace elinvar
