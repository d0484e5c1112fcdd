// A pool of an earlier version of the program continues under this one. pool_of_version_3.sql is the dump of such a
// database, made by the version before the scheduler was split into parts: one job has finished, one runs, two wait,
// one is cancelled, and its daemon was killed.
#include <gtest/gtest.h>

#include "tensor/base/file.h"
#include "tests/places.h"
#include "tests/pool/fake_world.h"
#include "tests/support/temporary_folder.h"
#include "tools/pool/page/metrics.h"
#include "tools/pool/page/view.h"
#include "tools/pool/policies/policies.h"
#include "tools/pool/profiling/job_models.h"

namespace elinvar::pool {
namespace {

using elinvar::test::TemporaryFolder;
using test::FakeSource;
using test::FakeWorld;
using State = JobRecord::State;

class OldPool : public testing::Test {
 protected:
  OldPool() {
    std::filesystem::create_directories(folder_ / "pool");
    SQLite::Database db((folder_ / "pool" / "pool.db").string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    db.exec(read_file(std::string(ELINVAR_SOURCE_DIR) + "/tests/pool/pool_of_version_3.sql"));
  }
  TemporaryFolder folder_;
};

TEST_F(OldPool, IsReadAsItWas) {
  const Store store = Store::open_existing(folder_ / "pool");
  const std::vector<JobRecord> jobs = store.jobs.all();
  ASSERT_EQ(jobs.size(), 5u);
  EXPECT_EQ(jobs[0].state, State::finished);
  EXPECT_EQ(jobs[0].digest, "2710b25cb5db52b52cd028c9011298d5");
  EXPECT_EQ(jobs[0].costs.finish, 0.07690119743347168);
  EXPECT_EQ(jobs[0].validations.every, 100);
  EXPECT_EQ(jobs[1].name, "long");
  EXPECT_EQ(jobs[1].state, State::running);
  EXPECT_EQ(jobs[1].shape, WorkerShape{});
  EXPECT_EQ(jobs[2].state, State::waiting);
  EXPECT_EQ(jobs[3].state, State::cancelled);
  const std::vector<Measurement> measured = store.measurements.of(2);
  ASSERT_EQ(measured.size(), 3u);
  EXPECT_EQ(measured[1].workers, (Allocation{{"cpu-1", 2}}));
  EXPECT_DOUBLE_EQ(measured[1].predicted, 41280.931912344625742);
  EXPECT_DOUBLE_EQ(measured[1].predicted_error, 0.08287920659010306057);
  const std::vector<ProcessRecord> processes = store.processes.present();
  ASSERT_EQ(processes.size(), 4u);
  EXPECT_EQ(processes[1].name(), "w4");
  EXPECT_TRUE(processes[1].registered);
  EXPECT_EQ(processes[1].slots.size(), 1u);
  EXPECT_EQ(store.log.last(0, 1000).size(), 29u);
  EXPECT_NE(jobs_table(pool_view(store, 1795540800, 3600)).find("narrow"), std::string::npos);
  EXPECT_NE(pool_metrics(store).find("elinvar_pool_job_steps{job=\"2\",name=\"long\"}"), std::string::npos);
}

TEST_F(OldPool, GoesOnToTheEndOfItsJobs) {
  Store store(folder_ / "pool");
  FakeWorld world(store);
  world.steps_a_second = 5e4;
  auto source = std::make_unique<FakeSource>();
  source->there = {{.host = "localhost", .kind = "cpu-1", .device = "cpu", .slots = 2}};
  std::vector<NamedSource> sources;
  sources.push_back({"here", std::move(source)});
  JobModels models(store);
  Scheduler scheduler(store, world, std::move(sources),
                      {.policy = policy_of("marginal").plan,
                       .speed = [&](const JobRecord& job,
                                    const std::vector<Measurement>& measured) { return models.of(job, measured); },
                       .overheads = [&](const JobRecord& job) { return models.overheads(job); }});
  double now = 1795540800;
  for (int i = 0; i < 600 && !store.jobs.open().empty(); ++i) {
    world.advance(1);
    scheduler.tick(now += 1);
  }
  for (const Id id : {2, 3, 5})
    EXPECT_EQ(store.jobs.find(id)->state, State::finished) << log_text(log_view(store.log.last(0, 100)));
  EXPECT_EQ(store.jobs.find(1)->digest, "2710b25cb5db52b52cd028c9011298d5");
  EXPECT_EQ(store.slots.all().size(), 2u) << "its slots were known again";
}

}  // namespace
}  // namespace elinvar::pool
