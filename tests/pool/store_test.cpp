// The store of a pool.
#include "tools/pool/store/store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::pool {
namespace {

using elinvar::test::message_of;
using elinvar::test::TemporaryFolder;

JobRecord some_job(const std::string& name) {
  JobRecord job;
  job.name = name;
  job.config = "[run]\n";
  job.overrides = {"run.seed=3"};
  job.max_workers = 4;
  job.kinds = {"cpu-1", "H200"};
  job.submitted = 12.5;
  job.batch = 32;
  return job;
}

TEST(PoolStore, KeepsWhatItIsGiven) {
  const TemporaryFolder folder;
  Id id = 0, slot = 0, worker = 0;
  {
    Store store(folder / "pool");
    id = store.jobs.add(some_job("one"));
    slot = store.slots.add(SlotRecord{
        .source = "here", .host = "a", .lease = "7", .kind = "cpu-1", .device = "cpu", .threads = 3, .since = 4});
    worker = store.processes.add(ProcessRecord{.job = id, .slots = {slot}, .handle = "", .started = 5});
    store.measurements.record(id, 1, {.workers = {{"cpu-1", 2}}, .shape = {}, .seconds = 3, .rate = 100});
    store.measurements.record(id, 1,
                              {.workers = {{"cpu-1", 2}},
                               .shape = {.width = 1, .recompute = true},
                               .seconds = 6,
                               .rate = 90,
                               .predicted = 91,
                               .predicted_error = 0.25,
                               .trial = true});
    store.log.add(6, id, "plan", "because", "a");
    store.jobs.ask_cancel(id);
  }
  const Store store = Store::open_existing(folder / "pool");
  const std::optional<JobRecord> job = store.jobs.find(id);
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->name, "one");
  EXPECT_EQ(job->overrides, std::vector<std::string>{"run.seed=3"});
  EXPECT_EQ(job->kinds, (std::vector<std::string>{"cpu-1", "H200"}));
  EXPECT_EQ(job->deadline, kNever);
  EXPECT_EQ(job->state, JobRecord::State::waiting);
  EXPECT_TRUE(job->cancel);
  ASSERT_EQ(store.slots.present().size(), 1u);
  EXPECT_EQ(store.slots.present()[0].threads, 3);
  ASSERT_EQ(store.processes.present().size(), 1u);
  EXPECT_EQ(store.processes.present()[0].id, worker);
  EXPECT_EQ(store.processes.present()[0].slots, std::vector<Id>{slot});
  EXPECT_EQ(store.processes.present()[0].leave_by, kNever);
  ASSERT_EQ(store.measurements.of(id).size(), 1u);
  EXPECT_EQ(store.measurements.of(id)[0].rate, 90);
  EXPECT_TRUE(store.measurements.of(id)[0].shape.recompute);
  EXPECT_EQ(store.measurements.of(id)[0].predicted_error, 0.25);
  EXPECT_TRUE(store.measurements.of(id)[0].trial);
  ASSERT_EQ(store.log.last(id, 10).size(), 1u);
  EXPECT_EQ(store.log.last(id, 10)[0].reason, "because");
  struct stat status {};
  ASSERT_EQ(::stat((folder / "pool").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(PoolStore, LeavesTheModeOfAFolderThatWasThere) {
  const TemporaryFolder folder;
  const std::string place = folder / "there";
  ASSERT_EQ(::mkdir(place.c_str(), 0755), 0);
  const auto mode = [&] {
    struct stat status {};
    EXPECT_EQ(::stat(place.c_str(), &status), 0);
    return status.st_mode & 0777;
  };
  { const Store store(place + "/"); }
  EXPECT_EQ(mode(), 0755u);
  ASSERT_EQ(::chmod(place.c_str(), 0777), 0);
  EXPECT_NE(elinvar::test::message_of<UsageError>([&] { Store store(place); }).find("any user can write to"),
            std::string::npos);
  EXPECT_EQ(mode(), 0777u);
}

TEST(PoolStore, OneOfAnOlderVersionIsBroughtUpToDate) {
  const TemporaryFolder folder;
  Id id = 0;
  {
    Store store(folder / "pool");
    id = store.jobs.add(some_job("one"));
    store.measurements.record(id, 1, {.workers = {{"cpu-1", 2}}, .shape = {}, .seconds = 3, .rate = 100});
  }
  {
    SQLite::Database db((folder / "pool" / "pool.db").string(), SQLite::OPEN_READWRITE);
    db.exec("DROP INDEX processes_of_job");
    for (const char* column : {"jobs DROP validate_every", "jobs DROP validation", "jobs DROP took",
                               "measurements DROP doubt", "measurements DROP trial"})
      db.exec(fmt::format("ALTER TABLE {}", column));
    db.exec("PRAGMA user_version = 1");
  }
  Store store = Store::open_existing(folder / "pool");
  EXPECT_EQ(store.measurements.of(id).at(0).rate, 100);
  JobRecord job = *store.jobs.find(id);
  job.costs.start = 3;
  job.costs.join_stall = 0.25;
  job.validations.samples = 12;
  store.jobs.save(job);
  EXPECT_EQ(store.jobs.find(id)->costs.start, 3);
  EXPECT_EQ(store.jobs.find(id)->costs.join_stall, 0.25);
  EXPECT_EQ(store.jobs.find(id)->costs.leave, 0) << "not seen";
  EXPECT_EQ(store.jobs.find(id)->validations.samples, 12);
}

TEST(PoolStore, WhatVersionTwoKnewOfCostsIsKept) {
  const TemporaryFolder folder;
  const Id id = Store(folder / "pool").jobs.add(some_job("one"));
  {
    SQLite::Database db((folder / "pool" / "pool.db").string(), SQLite::OPEN_READWRITE);
    db.exec("DROP INDEX processes_of_job");
    db.exec("ALTER TABLE jobs DROP took");
    db.exec("ALTER TABLE jobs ADD start_took REAL DEFAULT 2.5");
    db.exec("ALTER TABLE jobs ADD finish_took REAL DEFAULT 0");
    db.exec("PRAGMA user_version = 2");
  }
  {
    const std::optional<DaemonLock> daemon = DaemonLock::take(folder / "pool");
    EXPECT_NE(message_of<UsageError>([&] { Store::open_existing(folder / "pool"); }).find("older version"),
              std::string::npos);
  }
  const RescaleCosts costs = Store::open_existing(folder / "pool").jobs.find(id)->costs;
  EXPECT_EQ(costs.start, 2.5);
  EXPECT_EQ(costs.finish, 0);
  EXPECT_EQ(costs.join, 0);
}

TEST(PoolStore, NoSlotHasTwoWorkers) {
  Store store(":memory:");
  const Id job = store.jobs.add(some_job("one"));
  const Id slot = store.slots.add(SlotRecord{.source = "here", .host = "a", .kind = "cpu-1", .device = "cpu"});
  ProcessRecord first{.job = job, .slots = {slot}, .handle = ""};
  first.id = store.processes.add(first);
  EXPECT_THROW(
      store.transaction([&] { store.processes.add(ProcessRecord{.job = job, .slots = {slot}, .handle = ""}); }),
      std::exception);
  EXPECT_EQ(store.processes.present().size(), 1u) << "of what fails nothing is kept";
  first.ended = 3;
  store.processes.save(first);
  EXPECT_NO_THROW(store.processes.add(ProcessRecord{.job = job, .slots = {slot}, .handle = ""}));
}

TEST(PoolStore, ProgressIsKeptForAWeek) {
  Store store(":memory:");
  const Id job = store.jobs.add(some_job("one"));
  const double day = 86400;
  for (const double at : {0 * day, 3 * day, 8 * day})
    store.transaction([&] { store.progress.add({.time = at, .job = job, .step = static_cast<int64_t>(at)}); });
  const std::vector<ProgressRecord> kept = store.progress.since(0);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].time, 3 * day);
  EXPECT_EQ(kept[1].step, static_cast<int64_t>(8 * day));
  EXPECT_EQ(store.progress.since(8 * day).size(), 1u);
}

TEST(PoolStore, NumbersAreNotUsedAgain) {
  Store store(":memory:");
  const Id slot = store.slots.add(SlotRecord{.source = "here", .host = "a", .kind = "cpu-1", .device = "cpu"});
  store.slots.lose(slot, 1);
  EXPECT_TRUE(store.slots.present().empty());
  EXPECT_GT(store.slots.add(SlotRecord{.source = "here", .host = "a", .kind = "cpu-1", .device = "cpu"}), slot);
}

// A daemon and a first job may be started in one shell line. SQLite alone would fail at once here.
TEST(PoolStore, WaitsForAnotherThatIsMakingIt) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "pool");
  SQLite::Database other((folder / "pool" / "pool.db").string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  other.exec("BEGIN IMMEDIATE");
  const std::jthread end([&other] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    other.exec("COMMIT");
  });
  EXPECT_EQ(Store(folder / "pool").jobs.add(some_job("x")), 1);
}

// A process that adds jobs, each with its line of the log and a worker on a new slot, is killed at any moment: each
// transaction is stored completely or not at all.
TEST(PoolStore, WhoeverIsKilledLeavesWholeTransactions) {
  const TemporaryFolder folder;
  { const Store made(folder / "pool"); }
  std::mt19937 random(7);
  size_t before = 0;
  for (int round = 0; round < 12; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      Store store(folder / "pool");
      while (true)
        store.transaction([&] {
          const Id job = store.jobs.add(some_job("x"));
          store.log.add(1, job, "submitted", "by a process that will die");
          const Id slot = store.slots.add(SlotRecord{.source = "here", .host = "a", .kind = "cpu-1", .device = "cpu"});
          store.processes.add(ProcessRecord{.job = job, .slots = {slot}, .handle = ""});
        });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const Store store = Store::open_existing(folder / "pool");
    const std::vector<JobRecord> jobs = store.jobs.all();
    EXPECT_GE(jobs.size(), before);
    before = jobs.size();
    EXPECT_EQ(store.log.last(0, 1 << 20).size(), jobs.size());
    EXPECT_EQ(store.slots.present().size(), jobs.size());
    const std::vector<ProcessRecord> processes = store.processes.present();
    ASSERT_EQ(processes.size(), jobs.size());
    for (const ProcessRecord& p : processes) EXPECT_EQ(p.slots.size(), 1u);
  }
}

TEST(PoolStore, OneThatIsRemovedIsPutBack) {
  const TemporaryFolder folder;
  Store store(folder / "pool");
  const Id first = store.jobs.add(some_job("first"));
  EXPECT_TRUE(store.in_place());
  for (const char* file : {"pool.db", "pool.db-wal"}) {  // any remaining files
    std::filesystem::remove(folder / "pool" / file);
    std::filesystem::remove(folder / "pool" / "pool.db");
    EXPECT_FALSE(store.in_place());
    store.put_back();
    EXPECT_TRUE(store.in_place());
    ASSERT_TRUE(Store::open_existing(folder / "pool").jobs.find(first).has_value());
  }
  const Id second = Store(folder / "pool").jobs.add(some_job("next"));
  EXPECT_GT(second, first);
  EXPECT_TRUE(store.jobs.find(second).has_value()) << "all have the same one";

  std::filesystem::remove(folder / "pool" / "pool.db");
  EXPECT_NE(message_of<Failure>([&] { Store another(folder / "pool"); }).find("was removed"), std::string::npos);
  for (const char* left : {"pool.db-wal", "pool.db-shm"}) std::filesystem::remove(folder / "pool" / left);
  const Store another(folder / "pool");
  EXPECT_NE(message_of<Failure>([&] { store.put_back(); }).find("pool.db.copy holds what is known here"),
            std::string::npos);
  EXPECT_TRUE(another.in_place());
  EXPECT_TRUE(another.jobs.all().empty());
}

TEST(PoolStore, ADamagedOneIsNamed) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "pool");
  folder.write("pool/pool.db", std::string(5000, 'x'));
  const std::string said = message_of<Failure>([&] { Store store(folder / "pool"); });
  EXPECT_NE(said.find((folder / "pool" / "pool.db").string() + ": file is not a database"), std::string::npos) << said;
}

// A daemon that finds damage while it serves ends and reports it, because retrying would never help.
TEST(PoolStore, DamageThatShowsLaterIsNamed) {
  const TemporaryFolder folder;
  {
    Store store(folder / "pool");
    store.transaction([&] {
      for (int i = 0; i < 500; ++i) store.jobs.add(some_job("a job"));
    });
  }
  {
    std::fstream file(folder / "pool" / "pool.db", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(10 * 4096);  // beyond the pages read when it is opened
    file << std::string(std::filesystem::file_size(folder / "pool" / "pool.db") - 10 * 4096, 'x');
  }
  const auto look = [&] {
    const Store store(folder / "pool");
    try {
      (void)store.jobs.all();
    } catch (const std::exception& error) {
      store.check_undamaged(error);
    }
  };
  EXPECT_NE(message_of<StoreDamage>(look).find("put a copy back"), std::string::npos);
}

// The store was lost.
TEST(PoolStore, ANewJobTakesUpNoOthersDirectory) {
  const TemporaryFolder folder;
  for (const char* job : {"7", "12", "x", "9999999999999999999999"})
    std::filesystem::create_directories(folder / "pool" / "jobs" / job);
  Store store(folder / "pool");
  EXPECT_EQ(store.jobs.add(some_job("next")), 13);
}

TEST(PoolLock, IsTakenAgainWhereItsFileIsRemoved) {
  const TemporaryFolder folder;
  std::optional<DaemonLock> one = DaemonLock::take(folder.path());
  ASSERT_TRUE(one.has_value());
  EXPECT_TRUE(one->keep());
  std::filesystem::remove(folder / "lock");
  EXPECT_TRUE(one->keep());
  EXPECT_FALSE(DaemonLock::take(folder.path()).has_value());
  std::filesystem::remove(folder / "lock");
  const std::optional<DaemonLock> other = DaemonLock::take(folder.path());
  ASSERT_TRUE(other.has_value());
  EXPECT_FALSE(one->keep()) << "that one serves now";
}

TEST(PoolStore, ThereMustBeAPoolToLookAt) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<UsageError>([&] { Store::open_existing(folder / "none"); }).find("holds no pool"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar::pool
