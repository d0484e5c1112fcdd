// The daemon's loop in a fake world: what it does about each thing that can happen, and thousands of random histories.
//   ELINVAR_SCHEDULES=5000 unit_tests --gtest_filter='PoolHistories*'     more of them
//   ELINVAR_SCHEDULE=<seed>                                                one, with its log
#include "tools/pool/keeper.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tensor/check.h"
#include "tests/pool_world.h"
#include "tools/pool/policies/policies.h"
#include "tools/pool/speed.h"
#include "tools/pool/view.h"

namespace elinvar::pool {
namespace {

using test::FakeSource;
using test::FakeWorld;
using test::KeeperDies;
using State = JobRecord::State;

// As fast as it has workers.
class EvenSpeed final : public Speed {
 public:
  Rate rate(const Mix& mix, const Form&) const override { return {.samples = static_cast<double>(workers(mix))}; }
};

// A pool, and the world that it is in.
class Scene {
 protected:
  explicit Scene(uint64_t seed) : world_(store_, seed) {}

  // A daemon that begins, perhaps after another one.
  void serve() {
    auto source = std::make_unique<FakeSource>();
    if (source_ != nullptr) *source = *source_;
    std::vector<Keeper::NamedSource> sources;
    source_ = source.get();
    sources.push_back({"fake", std::move(source)});
    keeper_.emplace(store_, world_, std::move(sources), options());
  }
  KeeperOptions options() const {
    return {.policy = policy_,
            .speed = [learns = learns_](const JobRecord&,
                                        const std::vector<Measurement>& measured) -> std::shared_ptr<const Speed> {
              if (learns) return std::make_shared<FittedSpeed>(4, 10, measured);
              return std::make_shared<EvenSpeed>();
            },
            .grace = 10,
            .replan = 20,
            .idle = 60,
            .patience = 300,
            .turn = 20,
            .horizon = 60};
  }
  void machines(std::vector<Machine> there) {
    if (source_ == nullptr) serve();
    source_->there = std::move(there);
  }
  static Machine machine(const std::string& host, int slots, const std::string& kind = "cpu-1") {
    return {.host = host, .kind = kind, .device = "cpu", .slots = slots};
  }
  Id submit(int64_t steps, int least = 1, int most = 8, int priority = 0) {
    JobRecord job;
    job.name = "job";
    job.min_workers = least;
    job.max_workers = job.fixed_workers = most;
    job.priority = priority;
    job.submitted = now_;
    job.batch = 10;
    job.steps = steps;
    return store_.add(job);
  }
  void tick(double seconds = 1) {
    now_ += seconds;
    world_.advance(seconds);
    keeper_->tick(now_);
  }
  void ticks(int count) {
    for (int i = 0; i < count; ++i) tick();
  }
  JobRecord job(Id id) const { return *store_.job(id); }
  std::string story() const { return log_text(log_view(store_.history(0, 400))); }
  size_t count(const std::string& what, Id id = 0) const {
    size_t n = 0;
    for (const LogLine& line : store_.history(id, 1 << 20)) n += line.what == what;
    return n;
  }

  Store store_{":memory:"};
  FakeWorld world_;
  double now_ = 1000;
  FakeSource* source_ = nullptr;
  std::optional<Keeper> keeper_;
  Policy policy_ = equal;
  bool learns_ = false;  // speeds from measurements
};

class PoolKeeper : public testing::Test, protected Scene {
 protected:
  PoolKeeper() : Scene(1) {}
};

TEST_F(PoolKeeper, TrainsAJobToItsEnd) {
  machines({machine("a", 2)});
  const Id id = submit(100);
  ticks(40);
  EXPECT_EQ(job(id).state, State::finished) << story();
  EXPECT_EQ(job(id).step, 100);
  EXPECT_EQ(job(id).digest, "d1");
  EXPECT_EQ(world_.starts(id), 1);
  EXPECT_TRUE(store_.processes().empty()) << story();
}

TEST_F(PoolKeeper, SharesSlotsAndGivesThemBack) {
  machines({machine("a", 4)});
  const Id first = submit(100000);
  ticks(10);
  EXPECT_EQ(world_.running(first).size(), 4u) << story();
  const Id second = submit(100);
  ticks(40);
  EXPECT_GE(world_.running(second).size() + (job(second).state == State::finished), 1u) << story();
  ticks(120);
  EXPECT_EQ(job(second).state, State::finished) << story();
  EXPECT_EQ(world_.running(first).size(), 4u) << "what it gave away comes back\n" << story();
  EXPECT_EQ(world_.starts(first), 1) << "it never stood still";
}

TEST_F(PoolKeeper, AWorkerThatDiesIsReplaced) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  world_.kill_worker();
  ticks(10);
  EXPECT_EQ(world_.running(id).size(), 2u) << story();
  EXPECT_EQ(count("lost", id), 1u);
  EXPECT_EQ(world_.starts(id), 1);
}

TEST_F(PoolKeeper, ACoordinatorIsLeftToItsWorkers) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  world_.kill_coordinator(id);
  ticks(15);
  EXPECT_TRUE(world_.coordinated(id));
  EXPECT_EQ(world_.starts(id), 1) << "one of them has taken over\n" << story();
  EXPECT_EQ(job(id).state, State::running);
}

TEST_F(PoolKeeper, AJobWhoseEveryProcessDiesStartsAgain) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(30);
  world_.kill_all_of(id);
  ticks(20);
  EXPECT_EQ(world_.starts(id), 2) << story();
  EXPECT_EQ(job(id).state, State::running);
  EXPECT_EQ(job(id).failures, 1);
}

TEST_F(PoolKeeper, AJobThatNeverGetsAStepFurtherFails) {
  machines({machine("a", 1)});
  world_.steps_a_second = 0;
  const Id id = submit(1000);
  for (int i = 0; i < 400 && !job(id).over(); ++i) {
    ticks(3);
    world_.kill_all_of(id);
  }
  EXPECT_EQ(job(id).state, State::failed) << story();
  EXPECT_EQ(world_.starts(id), 5);
  EXPECT_NE(job(id).reason.find("5 failures without a step"), std::string::npos) << job(id).reason;
}

TEST_F(PoolKeeper, AConfigurationThatNoWorkerAcceptsFailsAtOnce) {
  machines({machine("a", 2)});
  world_.fails_at_once = 2;
  world_.words_of_dead = "train: there is no folder data/nowhere\n";
  const Id id = submit(1000);
  ticks(10);
  EXPECT_EQ(job(id).state, State::failed) << story();
  EXPECT_NE(job(id).reason.find("there is no folder data/nowhere"), std::string::npos) << job(id).reason;
  ticks(10);
  EXPECT_TRUE(store_.processes().empty());
}

TEST_F(PoolKeeper, AHostWhereWorkersDoNotLiveRests) {
  machines({machine("a", 1)});
  const Id id = submit(100000);
  ticks(5);
  world_.fails_at_once = 3;
  world_.kill_worker();
  ticks(60);
  EXPECT_FALSE(job(id).over()) << story();
  EXPECT_LT(count("lost", id), 8u) << "the pauses grow";
  world_.fails_at_once.reset();
  ticks(70);
  EXPECT_EQ(world_.running(id).size(), 1u) << story();
}

TEST_F(PoolKeeper, AJobWhoseWorkersDoNotLiveDisturbsNoOther) {
  machines({machine("a", 3)});
  const Id good = submit(100000);
  ticks(5);
  world_.fails_at_once = 3;
  world_.fails_of = good + 1;
  const Id broken = submit(1000);
  ticks(120);
  EXPECT_EQ(job(broken).state, State::failed) << story();
  EXPECT_EQ(count("stop", good), 0u) << story();
  EXPECT_EQ(world_.starts(good), 1);
  EXPECT_GE(world_.running(good).size(), 2u) << "it may grow into what is free again\n" << story();
}

TEST_F(PoolKeeper, AJobWhoseWorkersLiveNowhereFails) {
  machines({machine("a", 1)});
  world_.fails_at_once = 3;
  const Id id = submit(1000);
  ticks(400);
  EXPECT_EQ(job(id).state, State::failed) << story();
}

TEST_F(PoolKeeper, WantOfMemoryIsAMeasurement) {
  machines({machine("a", 1)});
  const Id id = submit(100000);
  ticks(10);
  world_.words_of_dead = "train: out of memory: asked for 100 bytes\n";
  world_.kill_worker();
  ticks(1);
  const std::vector<Measurement> measured = store_.measurements(id);
  ASSERT_FALSE(measured.empty());
  EXPECT_EQ(measured.front().rate, 0);
  EXPECT_EQ(measured.front().workers, (Mix{{"cpu-1", 1}}));
  EXPECT_EQ(count("memory", id), 1u);
}

TEST_F(PoolKeeper, WantOfMemoryLeadsToAnotherForm) {
  learns_ = true;
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(30);
  ASSERT_EQ(world_.running(id).size(), 2u);
  ASSERT_FALSE(job(id).form.recompute);
  world_.words_of_dead = "train: out of memory: asked for 100 bytes\n";
  world_.kill_worker();
  ticks(60);
  EXPECT_TRUE(job(id).form.recompute) << story();
  EXPECT_EQ(job(id).state, State::running) << story();
  EXPECT_EQ(world_.running(id).size(), 2u) << story();
}

TEST_F(PoolKeeper, APromiseIsRememberedUntilItCanBeCompared) {
  learns_ = true;
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(60);
  machines({machine("a", 2), machine("b", 2)});
  ticks(60);
  const std::vector<Measurement> measured = store_.measurements(id);
  ASSERT_FALSE(measured.empty()) << story();
  for (const Measurement& m : measured) EXPECT_GT(m.predicted, 0) << workers(m.workers);
}

TEST_F(PoolKeeper, ANoticeMovesTheJobBeforeTheMachineGoes) {
  machines({{.host = "a", .lease = "1", .kind = "cpu-1", .device = "cpu", .until = now_ + 10000}});
  const Id id = submit(100000, 1, 1);
  ticks(10);
  ASSERT_EQ(world_.running(id).size(), 1u);
  const std::string before = world_.running(id)[0];
  source_->there[0].until = now_ + 30;
  source_->there.push_back(machine("b", 1));
  ticks(20);
  ASSERT_EQ(world_.running(id).size(), 1u) << story();
  EXPECT_NE(world_.running(id)[0], before) << story();
  EXPECT_EQ(world_.starts(id), 1) << "the next one came before it left\n" << story();
  EXPECT_EQ(source_->released, std::set<std::string>{"a"}) << "whoever waits for it need not wait longer";
}

TEST_F(PoolKeeper, ANoticeWithoutAnotherPlaceEndsInACheckpoint) {
  machines({{.host = "a", .lease = "1", .kind = "cpu-1", .device = "cpu", .until = now_ + 10000}});
  const Id id = submit(100000);
  ticks(10);
  const int64_t step = job(id).step;
  source_->there[0].until = now_ + 30;
  ticks(10);
  EXPECT_EQ(job(id).state, State::waiting) << story();
  EXPECT_GE(job(id).step, step);
  EXPECT_EQ(job(id).failures, 0);
  source_->there = {machine("b", 1)};
  ticks(10);
  EXPECT_EQ(world_.running(id).size(), 1u) << story();
}

TEST_F(PoolKeeper, CancelStopsAJobForGood) {
  machines({machine("a", 1)});
  const Id runs = submit(100000, 1, 1), waits = submit(100000, 1, 1);
  ticks(10);
  store_.ask_cancel(runs);
  store_.ask_cancel(waits);
  ticks(10);
  EXPECT_EQ(job(runs).state, State::cancelled) << story();
  EXPECT_EQ(job(waits).state, State::cancelled) << story();
  EXPECT_TRUE(store_.processes().empty()) << story();
}

TEST_F(PoolKeeper, TheNextDaemonFindsWhatRuns) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  const std::vector<std::string> before = world_.running(id);
  world_.advance(30);
  now_ += 30;
  serve();
  ticks(10);
  EXPECT_EQ(world_.running(id), before) << story();
  EXPECT_EQ(world_.starts(id), 1);
}

// Killed just after it has started a process, before it could write down which.
TEST_F(PoolKeeper, NothingIsStartedTwice) {
  for (int calls = 0; calls < 40; ++calls) {
    const Id id = submit(100);
    machines({machine("a", 1)});
    world_.die_after(calls);
    try {
      ticks(60);
      world_.die_after(-1);
    } catch (const KeeperDies&) {
      world_.die_after(-1);
      serve();
    }
    for (int i = 0; i < 120 && !job(id).over(); ++i) {
      tick();
      ASSERT_LE(world_.running(id).size(), 1u) << story();
    }
    ASSERT_EQ(job(id).state, State::finished) << story();
    EXPECT_EQ(world_.starts(id), 1) << "after " << calls << " calls\n" << story();
  }
}

TEST_F(PoolKeeper, ASourceThatDoesNotAnswerTakesNothingAway) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  source_->silent = true;
  serve();  // the next daemon has heard nothing yet
  ticks(20);
  EXPECT_EQ(world_.running(id).size(), 2u) << story();
  source_->silent = false;
  ticks(10);
  EXPECT_EQ(world_.running(id).size(), 2u) << story();
  EXPECT_EQ(count("trouble"), 1u);
  EXPECT_EQ(count("leave"), 0u) << story();
}

TEST_F(PoolKeeper, MachinesAreWantedAsLongAsJobsCouldUseThem) {
  machines({machine("a", 1)});
  ticks(2);
  EXPECT_EQ(source_->last_wanted, 0);
  submit(100000, 1, 4);
  ticks(3);
  EXPECT_EQ(source_->last_wanted, 3);
}

// Everything that can happen, in random order: machines come, give notice and go, anything dies, the daemon too, and
// its next one begins somewhere in the middle. At every moment: no slot with two workers, no job with two coordinators,
// no process that is not on file, no plan that breaks the rules, nobody above its maximum. When the world has become
// quiet every job comes to its end: nobody starves.
class History : protected Scene {
 public:
  explicit History(uint64_t seed) : Scene(seed) { policy_ = policies()[seed % 4].plan; }

  void run() {
    machines({machine("always", 1 + number(3))});
    for (int i = 0; i < 120; ++i) {
      happen();
      try {
        tick(0.5 + world_.chance(2));
      } catch (const KeeperDies&) {
        world_.die_after(-1);
        serve();
        continue;  // what it was at is not to be judged
      }
      ASSERT_NO_FATAL_FAILURE(look());
    }
    world_.die_after(-1);
    source_->silent = false;
    source_->there = {machine("always", 8)};
    for (int i = 0; i < 3000 && !store_.jobs(false).empty(); ++i) {
      tick(2);
      ASSERT_NO_FATAL_FAILURE(look());
    }
    for (const Id id : jobs_) EXPECT_TRUE(job(id).over()) << "job " << id << " starves";
    for (int i = 0; i < 20; ++i) tick(2);
    EXPECT_TRUE(store_.processes().empty()) << "processes are left";
    // A line "plan" without a job tells of one that was not carried out.
    for (const LogLine& line : store_.history(0, 1 << 20))
      EXPECT_FALSE(line.what == "plan" && line.job == 0) << line.reason;
  }
  using Scene::story;

 private:
  bool roll(double chance) { return world_.chance() < chance; }
  int number(double below) { return static_cast<int>(world_.chance(below)); }
  Id some_job() { return jobs_[static_cast<size_t>(number(static_cast<double>(jobs_.size())))]; }

  void happen() {
    if (jobs_.size() < 6 && roll(0.15)) {
      const int least = 1 + number(2);
      jobs_.push_back(submit(20 + number(200), least, least + number(4), number(3)));
    }
    std::vector<Machine>& there = source_->there;
    if (there.size() < 5 && roll(0.1)) {
      ++lease_;
      there.push_back({.host = "n" + std::to_string(lease_ % 4),
                       .lease = std::to_string(lease_),
                       .kind = roll(0.5) ? "cpu-1" : "cpu-2",
                       .device = "cpu",
                       .slots = 1 + number(2),
                       .until = now_ + 600});
    }
    if (there.size() > 1 && roll(0.05)) there.back().until = now_ + 12;
    std::erase_if(there, [&](const Machine& m) { return m.until < now_ || (m.host != "always" && roll(0.01)); });
    if (roll(0.04)) world_.kill_worker();
    if (!jobs_.empty()) {
      if (roll(0.03)) world_.kill_coordinator(some_job());
      if (roll(0.01)) world_.kill_all_of(some_job());
      if (roll(0.005)) store_.ask_cancel(some_job());
    }
    if (roll(0.06)) world_.die_after(number(12));
    source_->silent = roll(0.05);
  }

  void look() {
    std::map<Id, Id> worker_on;
    std::map<Id, int> staying;
    std::set<std::pair<Id, std::string>> on_file;
    for (const ProcessRecord& p : store_.processes()) {
      if (p.coordinator) continue;
      on_file.emplace(p.job, p.name());
      if (p.leaving == 0) ++staying[p.job];
      for (const Id slot : p.slots)
        ASSERT_TRUE(worker_on.emplace(slot, p.id).second) << "slot " << slot << " has two workers";
    }
    for (const Id id : jobs_) {
      ASSERT_LE(staying[id], 2 * job(id).max_workers) << "while it moves: those that come, and those that go then";
      for (const std::string& name : world_.running(id))
        ASSERT_TRUE(on_file.contains({id, name})) << "worker " << name << " of job " << id << " is not on file";
    }
  }

  std::vector<Id> jobs_;
  int lease_ = 0;
};

TEST(PoolHistories, KeepTheRules) {
  const char* const one = std::getenv("ELINVAR_SCHEDULE");
  const char* const many = std::getenv("ELINVAR_SCHEDULES");
  const uint64_t first = one != nullptr ? std::stoull(one) : 1;
  const uint64_t count = one != nullptr ? 1 : many != nullptr ? std::stoull(many) : 20;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History history(seed);
    history.run();
    if (one != nullptr) std::puts(history.story().c_str());
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace elinvar::pool
