// When a run may end, and what happens if its last state cannot be saved.
#include "elastic/protocol/last_checkpoint.h"

#include <gtest/gtest.h>

#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using test::CoordinatedJob;

struct LastCheckpointOfARun : testing::Test {
  LastCheckpointOfARun() { job.run({1}); }
  void tell_all() {
    for (int64_t step = 0; step <= 10; ++step) (void)facts.take({{.step = step}}, 0);
  }
  CoordinatedJob job{{.steps = 10, .save_attempts = 3, .save_again = 2, .save_timeout = 60}};
  FactsOnFile facts{job.state};
  LastCheckpoint last{job.state, facts};
};

TEST_F(LastCheckpointOfARun, ARunIsWholeOnceEveryStepIsOnFileAndTheStateSaved) {
  last.committed(10);
  EXPECT_FALSE(last.whole());
  (void)facts.take({{.step = 8}, {.step = 9}}, 0);
  EXPECT_FALSE(last.whole()) << "the last reduction, of the digests, is not told";
  (void)facts.take({{.step = 10}}, 0);
  EXPECT_TRUE(last.whole());
  job.state.first_step = 4;
  last.restart();
  EXPECT_FALSE(last.whole());
}

TEST_F(LastCheckpointOfARun, IsTriedAgainByAFence) {
  tell_all();
  last.failed(10, "disk full", 5);
  EXPECT_TRUE(last.to_be_retried());
  last.failed(10, "disk full, says another part", 5.1);
  EXPECT_FALSE(last.retry(6.9));
  EXPECT_EQ(last.retry(7), "the last checkpoint could not be written");
  EXPECT_FALSE(last.to_be_retried());
  last.failed(10, "disk full", 8);
  (void)last.retry(10);
  EXPECT_FALSE(job.state.ending);
  last.failed(10, "disk full", 11);
  ASSERT_TRUE(job.state.ending);
  EXPECT_EQ(job.state.ending->reason, "the last checkpoint, of step 10, cannot be written: disk full");
}

TEST_F(LastCheckpointOfARun, OthersMayFail) {
  for (int i = 0; i < 5; ++i) last.failed(6, "disk full", i);
  EXPECT_FALSE(last.to_be_retried());
  job.state.current->stop = true;
  job.state.current->first_step = 6;
  EXPECT_TRUE(last.stops_at(6));
  EXPECT_FALSE(last.stops_at(5));
  last.failed(6, "disk full", 9);
  EXPECT_TRUE(last.to_be_retried()) << "the run stops here";
}

TEST_F(LastCheckpointOfARun, IsNotWaitedForForEver) {
  EXPECT_FALSE(last.retry(0));
  tell_all();
  EXPECT_FALSE(last.retry(100));
  EXPECT_FALSE(last.retry(160));
  EXPECT_FALSE(job.state.ending);
  EXPECT_FALSE(last.retry(161));
  ASSERT_TRUE(job.state.ending);
  EXPECT_EQ(job.state.ending->reason, "the last checkpoint, of step 10, is not written after 60 s");
}

}  // namespace
}  // namespace elinvar
