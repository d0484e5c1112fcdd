#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/environment.h"
#include "elastic/protocol/hang.h"
#include "elastic/session/watch.h"
#include "tensor/stream.h"
#include "tests/elastic/simulator/elastic_simulator.h"

namespace elinvar {
namespace {

Schedule schedule_of(uint64_t seed) {
  return {.seed = seed,
          .vranks = 1 + static_cast<int>(seed % 9),
          .steps = 4 + static_cast<int64_t>(seed / 9 % 8),
          .initial_workers = 1 + static_cast<int>(seed / 5 % 4),
          .min_workers = 1 + static_cast<int>(seed / 7 % 2),
          .faults = static_cast<int>(seed / 3 % 7)};
}

// Each seed is a schedule of joins, drains, kills, stalls, cuts and dying coordinators. ELINVAR_SCHEDULES sets the
// number of schedules; ELINVAR_SCHEDULE selects a single one and prints its log.
struct Happened {
  int64_t schedules = 0, batch_changes = 0, opened = 0, interrupted = 0, killed_beside = 0, lost_open = 0, stopped = 0;
  int64_t in_group = 0, new_groups = 0, shrunk_groups = 0, kept_groups = 0, not_formed = 0, aborted_groups = 0;
  int64_t moved = 0, asked = 0, state_lost = 0;
  int64_t exchanged = 0, given_up = 0, stale = 0, stale_alone = 0, lost_within = 0;
};

struct RandomJobs {
  bool adaptive = false, gpus = false;
  int zero = 0, copies = 2, tp = 1;
  int64_t schedules = 2000;
};

Happened expect_random_schedules_hold(const RandomJobs& jobs) {
  CpuStream alone(1);
  const StreamScope scope(alone);
  const int64_t only = test::from_environment("ELINVAR_SCHEDULE", -1);
  const int64_t count = only >= 0 ? only + 1 : test::from_environment("ELINVAR_SCHEDULES", jobs.schedules);
  int failures = 0;
  int64_t generations = 0;
  Happened happened;
  for (int64_t seed = std::max<int64_t>(only, 0); seed < count && failures < 3; ++seed) {
    Schedule schedule = schedule_of(static_cast<uint64_t>(seed));
    schedule.adaptive = jobs.adaptive;
    schedule.zero = jobs.zero;
    schedule.copies = jobs.copies;
    schedule.tp = jobs.tp;
    schedule.shards = std::max(jobs.tp, 2 + static_cast<int>(seed % 3));
    if (jobs.tp > 1) schedule.initial_workers += static_cast<int>(seed % 4);
    schedule.sums = jobs.zero > 0 && seed % 2 == 0;
    if (jobs.gpus) {
      schedule.gpus = seed % 4 == 0 ? 85 : 100;
      schedule.audit_every = seed % 3 == 0 ? 4 : 0;
      schedule.steps += 8;
      schedule.initial_workers += 1;
    }
    const SimulationResult result = simulate(schedule);
    ++happened.schedules;
    generations += result.generations;
    happened.batch_changes += result.batch_changes;
    happened.opened += result.opened;
    happened.interrupted += result.interrupted;
    happened.killed_beside += result.killed_beside;
    happened.lost_open += result.lost_open;
    happened.stopped += result.stopped;
    happened.in_group += result.in_group;
    happened.new_groups += result.new_groups;
    happened.shrunk_groups += result.shrunk_groups;
    happened.kept_groups += result.kept_groups;
    happened.not_formed += result.not_formed;
    happened.aborted_groups += result.aborted_groups;
    happened.moved += result.moved;
    happened.asked += result.asked;
    happened.state_lost += result.state_lost;
    happened.exchanged += result.exchanged;
    happened.given_up += result.given_up;
    happened.stale += result.stale;
    happened.stale_alone += result.stale_alone;
    happened.lost_within += result.lost_within;
    if (result.violation.empty() && only < 0) continue;
    failures += !result.violation.empty();
    std::string log;
    for (const std::string& line : result.log) log += line + "\n";
    EXPECT_EQ(result.violation, "") << "schedule " << seed << "\n" << (only >= 0 || failures == 1 ? log : "");
  }
  EXPECT_GE(generations, happened.schedules);
  return happened;
}

// Open rank gradients are common, but a fence during one is rare, so some schedules cause it: a member dies while
// another one's open rank gradient takes long. Whether a coordinator is there to fence in time is left to chance.
TEST(ElasticProtocol, RandomSchedulesEndAsTheUndisturbedRun) {
  const Happened happened = expect_random_schedules_hold({});
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.opened, happened.schedules / 2);
  EXPECT_GT(happened.killed_beside, happened.schedules / 20);
  EXPECT_GT(happened.interrupted, happened.killed_beside / 2);
  EXPECT_GT(happened.lost_open, happened.schedules / 100);
  EXPECT_GT(happened.stopped, happened.schedules / 50);
}

// The undisturbed reference run changes its batch at the same steps.
TEST(ElasticProtocol, RandomSchedulesWithAdaptiveScalingAgreeOnEveryBatch) {
  const Happened happened = expect_random_schedules_hold({.adaptive = true});
  EXPECT_GE(happened.batch_changes, happened.schedules / 20);
}

// The schedules have groups that form late or not at all, that fail in the middle of a step, or that are made from the
// previous one.
TEST(ElasticProtocol, RandomSchedulesOfGpusGoThroughGroups) {
  const Happened happened = expect_random_schedules_hold({.gpus = true});
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.in_group, happened.schedules);
  EXPECT_GT(happened.new_groups, happened.schedules / 4);
  EXPECT_GT(happened.shrunk_groups, happened.schedules / 100);
  EXPECT_GT(happened.kept_groups, happened.schedules / 50);
  EXPECT_GT(happened.not_formed, happened.schedules / 20);
  EXPECT_GT(happened.aborted_groups, happened.schedules / 20);
}

// With ZeRO each worker keeps a part of the optimizer's state, which it may lose.
Happened expect_sharded_schedules_hold(int copies, bool adaptive = false, int zero = 1) {
  return expect_random_schedules_hold({.adaptive = adaptive, .zero = zero, .copies = copies});
}

TEST(ElasticProtocol, RandomSchedulesWithShardedStateEndAsTheUndisturbedRun) {
  const Happened happened = expect_sharded_schedules_hold(/*copies=*/2);
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.moved, happened.schedules);
  EXPECT_GT(happened.asked, happened.schedules / 50);
  EXPECT_GT(happened.state_lost, 0);
}

TEST(ElasticProtocol, RandomSchedulesWithOneCopyOfTheStateEndAsTheUndisturbedRun) {
  const Happened happened = expect_sharded_schedules_hold(/*copies=*/1);
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.state_lost, happened.schedules / 20);
}

TEST(ElasticProtocol, RandomSchedulesWithShardedStateAndAdaptiveScalingAgreeOnEveryBatch) {
  const Happened happened = expect_sharded_schedules_hold(/*copies=*/2, /*adaptive=*/true);
  if (happened.schedules < 100) return;
  EXPECT_GE(happened.batch_changes, happened.schedules / 20);
  EXPECT_GT(happened.moved, happened.schedules);
}

TEST(ElasticProtocol, RandomSchedulesWithOneCopyOfTheStateAndAdaptiveScalingAgreeOnEveryBatch) {
  const Happened happened = expect_sharded_schedules_hold(/*copies=*/1, /*adaptive=*/true);
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.state_lost, happened.schedules / 20);
}

// From the second stage on no worker keeps rank gradients: an interrupted step is computed again.
TEST(ElasticProtocol, RandomSchedulesWithoutWholeGradientsEndAsTheUndisturbedRun) {
  const Happened happened = expect_sharded_schedules_hold(/*copies=*/2, /*adaptive=*/false, /*zero=*/2);
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.opened, happened.schedules);
  EXPECT_GT(happened.interrupted, happened.killed_beside / 2);
  EXPECT_GT(happened.lost_open, happened.schedules / 100);
  EXPECT_GT(happened.moved, happened.schedules);
}

TEST(ElasticProtocol, RandomSchedulesWithoutWholeGradientsAndWithOneCopyEndAsTheUndisturbedRun) {
  const Happened happened = expect_sharded_schedules_hold(/*copies=*/1, /*adaptive=*/false, /*zero=*/2);
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.state_lost, happened.schedules / 20);
}

TEST(ElasticProtocol, RandomSchedulesWithoutWholeGradientsAndWithAdaptiveScalingAgreeOnEveryBatch) {
  const Happened happened = expect_sharded_schedules_hold(/*copies=*/2, /*adaptive=*/true, /*zero=*/2);
  EXPECT_GE(happened.batch_changes, happened.schedules / 20);
}

// With tensor parallelism two or three members compute each rank gradient together. They exchange values within it, and
// if one of them is gone the others give it up. One that computes alone while its generation ends may be no longer
// alone in the next.
Happened expect_schedules_of_replicas_hold(const RandomJobs& jobs) {
  const Happened happened = expect_random_schedules_hold(jobs);
  if (happened.schedules < 100) return happened;
  EXPECT_GT(happened.exchanged, 100 * happened.schedules);
  EXPECT_GT(happened.given_up, happened.schedules / 2);
  EXPECT_GT(happened.stale, 0);
  EXPECT_GT(happened.lost_within, happened.schedules / 100);
  EXPECT_GT(happened.opened, 5 * happened.schedules);
  EXPECT_GT(happened.killed_beside, happened.schedules / 20);
  EXPECT_GT(happened.interrupted, happened.killed_beside / 4);
  return happened;
}

TEST(ElasticProtocol, RandomSchedulesOfPairsEndAsTheUndisturbedRun) {
  const Happened happened = expect_schedules_of_replicas_hold({.tp = 2, .schedules = 1000});
  if (happened.schedules < 1000) return;
  EXPECT_GT(happened.stale_alone, 0);
}

TEST(ElasticProtocol, RandomSchedulesOfTriplesEndAsTheUndisturbedRun) {
  expect_schedules_of_replicas_hold({.tp = 3, .schedules = 600});
}

// The number of model replicas, on which the batch depends, changes less often than that of workers.
TEST(ElasticProtocol, RandomSchedulesOfPairsWithAdaptiveScalingAgreeOnEveryBatch) {
  const Happened happened = expect_schedules_of_replicas_hold({.adaptive = true, .tp = 2, .schedules = 500});
  EXPECT_GE(happened.batch_changes, happened.schedules / 100);
}

TEST(ElasticProtocol, RandomSchedulesOfPairsWithShardedStateEndAsTheUndisturbedRun) {
  const Happened happened = expect_schedules_of_replicas_hold({.zero = 1, .tp = 2, .schedules = 500});
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.moved, happened.schedules);
}

TEST(ElasticProtocol, RandomSchedulesOfTriplesWithOneCopyOfTheStateEndAsTheUndisturbedRun) {
  const Happened happened = expect_schedules_of_replicas_hold({.zero = 1, .copies = 1, .tp = 3, .schedules = 500});
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.state_lost, happened.schedules / 20);
}

TEST(ElasticProtocol, RandomSchedulesOfPairsWithoutWholeGradientsEndAsTheUndisturbedRun) {
  const Happened happened = expect_schedules_of_replicas_hold({.zero = 2, .tp = 2, .schedules = 500});
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.opened, 20 * happened.schedules) << "each rank gradient is put tensor by tensor";
}

TEST(ElasticProtocol, RandomSchedulesOfTriplesWithoutWholeGradientsAndWithAdaptiveScalingAgreeOnEveryBatch) {
  const Happened happened = expect_schedules_of_replicas_hold({.adaptive = true, .zero = 2, .tp = 3, .schedules = 500});
  EXPECT_GE(happened.batch_changes, happened.schedules / 100);
}

// A member computes a rank gradient alone while another dies, and belongs to a replica before it has finished. If it
// kept the gradient, the others of the replica would wait for its values until the patience with a lost message ends.
TEST(ElasticProtocol, DeathsLeaveNoMemberOfAReplicaWaitingInVain) {
  CpuStream alone(1);
  const StreamScope scope(alone);
  int stale = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Schedule schedule = schedule_of(seed);
    schedule.tp = 2;
    schedule.initial_workers = 3;
    schedule.faults = 4;
    for (bool* const fault : {&schedule.stalls, &schedule.cuts, &schedule.hangs, &schedule.coordinator_dies,
                              &schedule.stops, &schedule.drops})
      *fault = false;
    const SimulationResult result = simulate(schedule);
    EXPECT_EQ(result.violation, "") << seed;
    EXPECT_EQ(result.stuck, 0) << seed;
    stale += result.stale_alone;
  }
  EXPECT_GT(stale, 5);
}

// No worker is a member then, and one takes over all the same.
TEST(ElasticProtocol, RandomSchedulesWhoseCoordinatorDiesBeforeTheFirstGenerationGoOn) {
  CpuStream alone(1);
  const StreamScope scope(alone);
  const int64_t only = test::from_environment("ELINVAR_SCHEDULE", -1);
  const int64_t count = only >= 0 ? only + 1 : test::from_environment("ELINVAR_SCHEDULES", 2000);
  int failures = 0;
  for (int64_t seed = std::max<int64_t>(only, 0); seed < count && failures < 3; ++seed) {
    Schedule schedule = schedule_of(static_cast<uint64_t>(seed));
    // A worker that does not see the run directory cannot be found by a coordinator that takes over.
    schedule.min_workers = 1;
    schedule.faults = 0;
    schedule.orphaned = 1 + static_cast<int>(seed % 2);
    const SimulationResult result = simulate(schedule);
    if (result.violation.empty() && result.abandoned == 0 && only < 0) continue;
    ++failures;
    std::string log;
    for (const std::string& line : result.log) log += line + "\n";
    EXPECT_EQ(result.violation, "") << "schedule " << seed << "\n" << log;
    EXPECT_EQ(result.abandoned, 0) << "schedule " << seed << "\n" << log;
  }
}

TEST(ElasticProtocol, ASlowWorkerGetsFewerVirtualRanks) {
  CpuStream alone(1);
  const StreamScope scope(alone);
  const auto trained_by = [](std::vector<double> gradient_seconds) {
    const Schedule schedule{.seed = 1,
                            .vranks = 12,
                            .steps = 20,
                            .initial_workers = static_cast<int>(gradient_seconds.size()),
                            .faults = 0,
                            .gradient_seconds = gradient_seconds};
    SimulationResult result = simulate(schedule);
    EXPECT_EQ(result.violation, "");
    return result;
  };
  EXPECT_EQ(trained_by({0.02, 0.02, 0.02}).virtual_ranks, (std::vector<int>{4, 4, 4}));
  const SimulationResult result = trained_by({0.02, 0.1, 0.02});
  ASSERT_EQ(result.virtual_ranks.size(), 3u);
  EXPECT_LE(result.virtual_ranks[1], 2);
  EXPECT_GE(result.virtual_ranks[0], 5);
  // With equal shares each of the 20 steps would wait 0.4 s for the slow worker.
  EXPECT_LE(result.seconds, 0.6 * 20 * 0.4);
}

TEST(ElasticProtocol, AWorkerThatHangsIsEvicted) {
  CpuStream alone(1);
  const StreamScope scope(alone);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SimulationResult result = simulate({.seed = seed,
                                              .vranks = 6,
                                              .steps = 20,
                                              .initial_workers = 3,
                                              .faults = 0,
                                              .gradient_seconds = {0.05, 0.05, 0.05},
                                              .hang_at = 1});
    EXPECT_EQ(result.violation, "") << seed;
    EXPECT_GT(result.hang_lasted, 1) << seed;  // the floor that the simulator sets
    EXPECT_LT(result.hang_lasted, 2) << seed;  // two heartbeats and a tick
    EXPECT_LT(result.seconds, 8) << seed;
  }
}

// No hang: work that takes long, but not for its kind; waiting; work that is late on all members; and a member that is
// alone.
TEST(Hang, IsToldFromLongWork) {
  Generation generation;
  Roster roster;
  for (int i = 1; i <= 3; ++i) {
    generation.members.push_back(
        {.id = i, .peer = static_cast<PeerId>(i), .endpoint = "", .share = {}, .first_share = {}});
    roster[static_cast<PeerId>(i)] = {.peer = static_cast<PeerId>(i), .id = i};
  }
  const HangLimits limits{.floor = 2, .factor = 10, .unknown = 100, .shared = 5};
  const auto hung = [&] {
    std::vector<PeerId> peers;
    for (const Hung& h : find_hung(generation, roster, limits, 0.1)) peers.push_back(h.peer);
    return peers;
  };
  EXPECT_TRUE(hung().empty());
  roster[2].work = {.what = "a rank gradient", .lasts = 2.5, .usual = 0.1};
  EXPECT_EQ(hung(), std::vector<PeerId>{2});
  EXPECT_EQ(find_hung(generation, roster, limits, 0.1)[0].reason,
            "hangs: at a rank gradient for 2.5 s, which takes 0.1 s");
  // An old heartbeat: others report whether it is silent.
  EXPECT_TRUE(find_hung(generation, roster, limits, 9).empty());
  roster[2].work = {.what = "an evaluation", .lasts = 20, .usual = 3};
  EXPECT_TRUE(hung().empty());
  roster[2].work = {.what = "the first rank gradient", .lasts = 90, .usual = 0};
  EXPECT_TRUE(hung().empty());
  roster[2].work.lasts = 101;
  EXPECT_EQ(hung(), std::vector<PeerId>{2});
  roster[1].work = roster[2].work = {.what = "a rank gradient", .lasts = 2.5, .usual = 0.1};
  EXPECT_TRUE(hung().empty());
  roster[1].work.lasts = 11;
  EXPECT_EQ(hung(), std::vector<PeerId>{1});
  generation.members.resize(1);
  EXPECT_TRUE(hung().empty());
}

// Stuck only if no member is at work, none received anything, and all of that was reported just now.
TEST(Stuck, IsToldFromWaiting) {
  Generation generation;
  Roster roster;
  for (int i = 1; i <= 3; ++i) {
    const PeerId peer = static_cast<PeerId>(i);
    generation.members.push_back({.id = i, .peer = peer, .endpoint = "", .share = {}, .first_share = {}});
    roster[peer] = {.peer = peer, .id = i, .seen = 10, .work = {.idle = 4, .misses = i == 2 ? "the trailer" : ""}};
  }
  ASSERT_TRUE(find_stuck(generation, roster, 3, 10.1));
  EXPECT_EQ(find_stuck(generation, roster, 3, 10.1)->peer, 2u);
  EXPECT_EQ(find_stuck(generation, roster, 3, 10.1)->reason, "the trailer");
  EXPECT_FALSE(find_stuck(generation, roster, 5, 10.1));
  EXPECT_FALSE(find_stuck(generation, roster, 3, 12));
  roster[3].work = {.what = "a rank gradient", .lasts = 100};
  EXPECT_FALSE(find_stuck(generation, roster, 3, 10.1));
  roster[3].work = {.idle = 1};
  EXPECT_FALSE(find_stuck(generation, roster, 3, 10.1));
  roster[3].work = {.idle = 9};
  roster[2].work.misses = "";  // they wait for a message from the coordinator
  EXPECT_FALSE(find_stuck(generation, roster, 3, 10.1));
}

TEST(Stuck, PatienceDoublesAndIsForgotten) {
  Patience patience(3);
  EXPECT_EQ(patience.at(0), 3);
  for (int i = 0; i < 3; ++i) patience.lost(54);
  EXPECT_EQ(patience.at(54), 24);
  EXPECT_EQ(patience.at(1053), 24);
  EXPECT_EQ(patience.at(1054), 3);
  patience.lost(2000);
  EXPECT_EQ(patience.at(2000), 6);
  for (int i = 0; i < 100; ++i) patience.lost(2000);
  EXPECT_EQ(patience.at(2000), 3 * 1024);
  EXPECT_EQ(patience_for(500'000), 5);
}

TEST(Watch, DecidesByWhatTheWorkerSees) {
  using Do = Watch::Do;
  const WatchOptions options{.silence = 3, .takeover = 5, .apart = 1, .hold = 60};
  Watch watch(options, 1, 0);
  EXPECT_FALSE(watch.out_of_touch(2.9));
  watch.heard(2);
  EXPECT_FALSE(watch.asks(3.7));
  EXPECT_TRUE(watch.asks(3.9));
  EXPECT_EQ(watch.decide(Watch::Observation{1, 4}, 0, 4).what, Do::nothing);
  EXPECT_TRUE(watch.out_of_touch(5.1));
  EXPECT_EQ(watch.decide(Watch::Observation{1, 4}, 0, 5.5).what, Do::nothing);
  // It counts, so it lives and may be heard again.
  EXPECT_EQ(watch.decide(Watch::Observation{1, 5}, 0, 9.5).what, Do::nothing);
  EXPECT_EQ(watch.decide(Watch::Observation{1, 5}, 0, 14).what, Do::nothing);
  EXPECT_EQ(watch.decide(Watch::Observation{1, 5}, 1, 15).what, Do::nothing);
  const Watch::Decision decision = watch.decide(Watch::Observation{1, 5}, 0, 15);
  EXPECT_EQ(decision.what, Do::take_over);
  EXPECT_EQ(decision.reason, "the coordinator has not counted on for 5 s");
  EXPECT_EQ(watch.decide(Watch::Observation{1, 5}, 0, 16).what, Do::nothing);  // not again at once
  EXPECT_EQ(watch.decide(Watch::Observation{2, 0}, 0, 17).what, Do::follow);
  watch.follow(2, 17);
  watch.heard(17);
  watch.lost();
  EXPECT_EQ(watch.decide(Watch::Observation{2, 3}, 0, 18.5).what, Do::reconnect);  // perhaps only the connection broke
  EXPECT_EQ(watch.decide(std::nullopt, 0, 19).what, Do::reconnect);
  watch.answered();
  watch.heard(19);
  EXPECT_EQ(watch.decide(std::nullopt, 0, 20).what, Do::nothing);
  watch.lost();
  EXPECT_EQ(watch.decide(Watch::Observation{2, 4}, 0, 21).what, Do::reconnect);
  EXPECT_EQ(watch.decide(Watch::Observation{2, 4}, 0, 26).what, Do::take_over);  // the coordinator is gone
  EXPECT_EQ(watch.decide(std::nullopt, 0, 80).what, Do::reconnect);
  EXPECT_EQ(watch.decide(std::nullopt, 0, 82).what, Do::leave);
}

// Non-members take over after the members of the newest generation, in the order of their arrival. That generation may
// have no members.
TEST(Watch, WhoIsNoMemberTakesOverAfterAllThatAre) {
  using Do = Watch::Do;
  const auto waits = [](int members, int rank, int arrival) {
    Watch watch({.silence = 3, .takeover = 5, .apart = 1, .hold = 60, .arrival = arrival}, 1, 0);
    watch.lost();
    double now = 1;
    while (watch.decide(Watch::Observation{1, 4, members}, rank, now).what != Do::take_over && now < 50) now += 0.5;
    return now - 1;
  };
  EXPECT_EQ(waits(0, -1, 0), 5);
  EXPECT_EQ(waits(0, -1, 2), 7);
  EXPECT_EQ(waits(3, 2, 0), 7);
  EXPECT_EQ(waits(3, -1, 0), 8);
  EXPECT_EQ(waits(3, -1, 4), 12);
}

// decide() is only called while a worker is out of touch, so a message must end that time by itself.
TEST(Watch, SilencesFarApartAreNotOne) {
  const WatchOptions options{.silence = 3, .hold = 60};
  Watch watch(options, 1, 0);
  EXPECT_TRUE(watch.out_of_touch(4));
  EXPECT_EQ(watch.decide(std::nullopt, 0, 4).what, Watch::Do::nothing);
  watch.heard(5);
  watch.heard(99);
  EXPECT_TRUE(watch.out_of_touch(103));
  EXPECT_EQ(watch.decide(std::nullopt, 0, 103).what, Watch::Do::nothing);
  EXPECT_EQ(watch.decide(std::nullopt, 0, 163.5).what, Watch::Do::leave);
}

}  // namespace
}  // namespace elinvar
