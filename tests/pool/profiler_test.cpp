// The profiler's records of a running job, and its comparison with predictions.
#include "tools/pool/daemon/profiler.h"

#include <gtest/gtest.h>

namespace elinvar::pool {
namespace {

TEST(PoolProfiler, APredictionIsComparedOnceAndInOneGeneration) {
  Store store(":memory:");
  JobRecord job;
  job.batch = 10;
  job.id = store.jobs.add(job);
  Profiler profiler(store);
  const Allocation two{{"cpu-1", 2}};
  EXPECT_FALSE(profiler.predicted(job.id, two, {}));
  profiler.predict(job.id, {.allocation = two, .shape = {}, .rate = 50, .error = 0.1});
  EXPECT_TRUE(profiler.predicted(job.id, two, {}));
  EXPECT_FALSE(profiler.predicted(job.id, two, {.width = 2}));
  RunStatus status;
  status.generation = 3;
  status.workers = 2;
  status.measured_steps = 100;
  status.measured_seconds = 20;
  EXPECT_FALSE(profiler.observe(job, status, std::nullopt, 100)) << "some of its workers are on their way";
  EXPECT_TRUE(profiler.observe(job, status, two, 101)) << "the first measurement of a generation";
  EXPECT_FALSE(profiler.observe(job, status, two, 102)) << "too soon";
  EXPECT_FALSE(profiler.observe(job, status, two, 107));
  ASSERT_EQ(store.measurements.of(job.id).size(), 1u);
  EXPECT_EQ(store.measurements.of(job.id)[0].rate, 50);
  EXPECT_EQ(store.measurements.of(job.id)[0].predicted, 50);
  status.generation = 4;
  EXPECT_TRUE(profiler.observe(job, status, two, 120));
  ASSERT_EQ(store.measurements.of(job.id).size(), 2u);
  EXPECT_EQ(store.measurements.of(job.id)[1].predicted, 0);
  size_t compared = 0;
  for (const LogLine& line : store.log.last(job.id, 100)) compared += line.what == "speed";
  EXPECT_EQ(compared, 1u);
  profiler.stopped(job.id, /*keeps_prediction=*/true);
  EXPECT_TRUE(profiler.predicted(job.id, two, {}));
  profiler.stopped(job.id, /*keeps_prediction=*/false);
  EXPECT_FALSE(profiler.predicted(job.id, two, {}));
}

TEST(PoolProfiler, WantOfMemoryComesBeforeEverythingMeasured) {
  Store store(":memory:");
  JobRecord job;
  job.id = store.jobs.add(job);
  store.measurements.record(job.id, 1, {.workers = {{"cpu-1", 1}}, .shape = {}, .seconds = 3, .rate = 10});
  Profiler(store).ran_out_of_memory(job, {.id = 8, .job = job.id}, "cpu-1", 2);
  ASSERT_EQ(store.measurements.of(job.id).size(), 2u);
  EXPECT_EQ(store.measurements.of(job.id)[0].rate, 0);
  EXPECT_EQ(store.measurements.of(job.id)[0].workers, (Allocation{{"cpu-1", 2}}));
}

}  // namespace
}  // namespace elinvar::pool
