// Processes in a fake world: recorded from their start to their end.
#include "tools/pool/daemon/process_table.h"

#include <gtest/gtest.h>

#include "tests/pool/fake_world.h"

namespace elinvar::pool {
namespace {

using test::FakeWorld;

class PoolProcesses : public testing::Test {
 protected:
  PoolProcesses() {
    JobRecord job;
    job.steps = 1000;
    job_ = store_.jobs.add(job);
    slot_ = store_.slots.add(SlotRecord{.source = "fake", .host = "a", .kind = "cpu-1", .device = "cpu"});
  }
  std::string launch(bool coordinator) {
    return table_.launch(
        {.job = job_, .coordinator = coordinator, .slots = coordinator ? std::vector<Id>{} : std::vector<Id>{slot_}},
        [&](const ProcessRecord& p) {
          return coordinator ? std::vector<std::string>{"train", "run"}
                             : std::vector<std::string>{"train", "join", "--name", p.name()};
        },
        1);
  }
  void poll(double now, bool slots = true) {
    table_.poll(
        now, [=](Id) { return slots; }, [&](const ProcessRecord& p) { ended_.push_back(p); });
  }
  Store store_{":memory:"};
  FakeWorld world_{store_};
  ProcessTable table_{store_, world_};
  Id job_ = 0, slot_ = 0;
  std::vector<ProcessRecord> ended_;
};

TEST_F(PoolProcesses, AreOnFileFromTheirStartToTheirEnd) {
  EXPECT_EQ(launch(true), "");
  EXPECT_EQ(launch(false), "");
  EXPECT_NE(table_.coordinator_of(job_), nullptr);
  ASSERT_EQ(table_.workers_of(job_).size(), 1u);
  EXPECT_TRUE(table_.occupied(slot_));
  ProcessTable next(store_, world_);
  next.load(1, 10);
  EXPECT_EQ(next.all_of(job_).size(), 2u) << "the next daemon has them";
  poll(2);
  EXPECT_TRUE(ended_.empty());
  world_.kill_worker();  // in this world the coordinator of a job without workers ends by itself
  poll(3);
  ASSERT_EQ(ended_.size(), 2u);
  EXPECT_EQ(ended_[0].code, 3);
  EXPECT_EQ(ended_[1].code, 137);
  EXPECT_FALSE(table_.occupied(slot_));
  EXPECT_TRUE(store_.processes.present().empty());
}

TEST_F(PoolProcesses, AreKilledWhereTheyDoNotLeaveOrTheirSlotsAreGone) {
  launch(true);
  launch(false);
  table_.leave(*table_.workers_of(job_)[0], 5, 15);
  table_.leave(*table_.workers_of(job_)[0], 6, 30);
  EXPECT_EQ(table_.workers_of(job_)[0]->leave_by, 15) << "nobody gets more time";
  poll(14);
  poll(15);
  EXPECT_TRUE(ended_.empty()) << "it has just been killed";
  poll(16);
  ASSERT_EQ(ended_.size(), 2u);
  EXPECT_EQ(ended_[1].code, 137);
  launch(true);
  launch(false);
  poll(17, /*slots=*/false);
  poll(18);
  ASSERT_EQ(ended_.size(), 4u);
  EXPECT_EQ(ended_[2].code, 3) << "a coordinator needs no slot: it was not killed";
  EXPECT_EQ(ended_[3].code, 137);
}

TEST_F(PoolProcesses, OneThatCannotBeStartedHasEnded) {
  const std::string trouble = table_.launch(
      {.job = job_, .slots = {slot_}},
      [](const ProcessRecord&) -> std::vector<std::string> { throw Failure("a is gone"); }, 1);
  EXPECT_EQ(trouble, "a is gone");
  EXPECT_TRUE(table_.workers_of(job_).empty());
  EXPECT_TRUE(store_.processes.present().empty());
}

}  // namespace
}  // namespace elinvar::pool
