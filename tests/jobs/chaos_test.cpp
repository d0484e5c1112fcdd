// Fault injection: the specification, the decisions, and schedules of faults against real processes.
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstdlib>

#include "tests/support/environment.h"
#include "elastic/session/chaos.h"
#include "elastic/session/worker_faults.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using test::message_of;

TEST(Chaos, TheSpecificationIsParsed) {
  const Chaos chaos = parse_chaos(
      "kill:worker=1,step=17;stall:worker=0,step=5,seconds=3;kill:coordinator,step=2;kill:step=9,all;"
      "drain:step=3,worker=4;join:step=8;drop:worker=2,step=4;flip:worker=3,step=6,bit=33;"
      "flip:what=optimizer,worker=3,step=6,bit=1;kill:at=update,worker=2,step=3;random:rate=0.05,seed=7");
  ASSERT_EQ(chaos.faults.size(), 10u);
  EXPECT_EQ(chaos.faults[9].at, Fault::Point::update);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(chaos.faults[i].at.has_value(), i == 9);
    EXPECT_EQ(by_worker(chaos.faults[i]), i >= 6) << i;
  }
  EXPECT_EQ(chaos.faults[7].flips, Fault::Flips::gradient);
  EXPECT_EQ(chaos.faults[8].flips, Fault::Flips::optimizer);
  EXPECT_EQ(chaos.faults[6].what, Fault::What::drop);
  EXPECT_EQ(chaos.faults[7].what, Fault::What::flip);
  EXPECT_EQ(chaos.faults[7].bit, 33);
  EXPECT_EQ(chaos.faults[0].what, Fault::What::kill);
  EXPECT_EQ(chaos.faults[0].whom, Fault::Whom::worker);
  EXPECT_EQ(chaos.faults[0].worker, 1);
  EXPECT_EQ(chaos.faults[0].step, 17);
  EXPECT_EQ(chaos.faults[1].what, Fault::What::stall);
  EXPECT_EQ(chaos.faults[1].seconds, 3);
  EXPECT_EQ(chaos.faults[2].whom, Fault::Whom::coordinator);
  EXPECT_EQ(chaos.faults[3].whom, Fault::Whom::all);
  EXPECT_EQ(chaos.faults[4].what, Fault::What::drain);
  EXPECT_EQ(chaos.faults[4].worker, 4);
  EXPECT_EQ(chaos.faults[5].what, Fault::What::join);
  EXPECT_EQ(chaos.faults[5].step, 8);
  ASSERT_TRUE(chaos.random);
  EXPECT_EQ(chaos.random->seed, 7u);
  EXPECT_EQ(chaos.random->rate, 0.05);
}

TEST(Chaos, ABitFlipsOnceInTheTensorThatItIsCountedTo) {
  WorkerFaults faults(parse_chaos("flip:worker=2,step=6,bit=165,what=reduced;kill:worker=2,step=6").faults);
  const Tensor first = Tensor::full({3}, 1), second = Tensor::zeros({2}, DType::i32);
  std::vector<Tensor> tensors = {first, second};
  EXPECT_FALSE(faults.flips(Fault::Flips::gradient, 2, false, 5, tensors));
  EXPECT_FALSE(faults.flips(Fault::Flips::reduced, 1, true, 5, tensors));
  EXPECT_FALSE(faults.flips(Fault::Flips::reduced, 2, false, 6, tensors));
  EXPECT_FALSE(faults.flips(Fault::Flips::reduced, 2, false, 5, {}));
  EXPECT_TRUE(faults.flips_later());
  EXPECT_EQ(faults.flips(Fault::Flips::reduced, 2, false, 5, tensors), 5);  // of 160 bits
  EXPECT_FALSE(faults.flips_later());
  EXPECT_EQ(tensors[0].data<float>()[0], std::bit_cast<float>(std::bit_cast<uint32_t>(1.0f) ^ 1u << 5));
  EXPECT_EQ(first.data<float>()[0], 1) << "others may hold the tensor";
  EXPECT_TRUE(tensors[1].shares_storage(second));
  EXPECT_FALSE(faults.flips(Fault::Flips::reduced, 2, false, 5, tensors));
}

// Otherwise each new leader of the repeated reduction would lose a message of it, and all members would wait twice as
// long each time before they notice.
TEST(Chaos, AMessageIsLostOnlyWhereItsReductionIsMadeForTheFirstTime) {
  WorkerFaults leader(parse_chaos("drop:worker=0,step=6").faults), next = leader;
  EXPECT_FALSE(leader.drops(1, true, 4, "result"));
  EXPECT_FALSE(leader.drops(1, true, 5, "ack"));
  next.interrupted(4);
  EXPECT_TRUE(leader.drops(1, true, 5, "result"));
  next.interrupted(5);
  EXPECT_FALSE(next.drops(2, true, 5, "result"));
}

TEST(Chaos, AWorkerDiesOnceAtThePointThatIsNamed) {
  WorkerFaults faults(
      parse_chaos("kill:worker=2,step=6,at=sum;kill:worker=0,step=7,at=trailer;kill:worker=2,step=6").faults);
  EXPECT_FALSE(faults.dies(Fault::Point::sum, 1, true, 5));
  EXPECT_FALSE(faults.dies(Fault::Point::sum, 2, false, 4));
  EXPECT_FALSE(faults.dies(Fault::Point::part, 2, false, 5));
  EXPECT_TRUE(faults.dies(Fault::Point::sum, 2, false, 5));
  EXPECT_FALSE(faults.dies(Fault::Point::sum, 2, false, 5));
  WorkerFaults next = faults, committed = faults;
  EXPECT_FALSE(faults.dies(Fault::Point::trailer, 1, false, 6));
  EXPECT_TRUE(faults.dies(Fault::Point::trailer, 1, true, 6));
  next.interrupted(6);  // the step is repeated
  EXPECT_FALSE(next.dies(Fault::Point::trailer, 2, true, 6));
  committed.interrupted(7);  // the others have it
  EXPECT_FALSE(committed.dies(Fault::Point::trailer, 2, true, 6));
}

TEST(Chaos, ErrorsNameWhatIsWrongAndWhatWasExpected) {
  const auto error = [](const std::string& text) { return message_of<UsageError>([&] { parse_chaos(text); }); };
  EXPECT_EQ(error("kil:worker=1"),
            "[chaos] 'kil:worker=1': expected kill, stall, drain, join, drop, flip, arrange or random, got 'kil'; did "
            "you mean "
            "'kill'?");
  EXPECT_EQ(error("join:step=1;"),
            "[chaos] '': expected kill, stall, drain, join, drop, flip, arrange or random, got ''; valid are kill, "
            "stall, drain, join, drop, flip, arrange, random");
  EXPECT_EQ(error("kill:worker=1"), "[chaos] 'kill:worker=1': expected step=N from 1 on, got none");
  EXPECT_EQ(error("kill:step=1"), "[chaos] 'kill:step=1': expected worker=ID, 0 for the leader, got none");
  EXPECT_EQ(error("kill:worker=one,step=1"),
            "[chaos] 'kill:worker=one,step=1': expected worker=ID, 0 for the leader, got 'one'");
  EXPECT_EQ(error("drain:worker=1,step=0"), "[chaos] 'drain:worker=1,step=0': expected step=N from 1 on, got '0'");
  EXPECT_EQ(error("stall:worker=1,step=2,seconds=-1"),
            "[chaos] 'stall:worker=1,step=2,seconds=-1': expected seconds=S from 0 to 3600, got '-1'");
  EXPECT_EQ(error("flip:worker=1,step=2,bit=3,what=leave"),
            "[chaos] 'flip:worker=1,step=2,bit=3,what=leave': expected what to be one of leaf, input, reduced, "
            "parameter, optimizer, got 'leave'; did you mean 'leaf'?");
  EXPECT_EQ(error("kill:worker=1,step=2,at=values"),
            "[chaos] 'kill:worker=1,step=2,at=values': expected at to be one of forward, within, boundary, contribute, "
            "sum, part, trailer, update, value, fetch, got 'values'; did you mean 'value'?");
  EXPECT_EQ(error("kill:all,step=2,at=sum"), "[chaos] 'kill:all,step=2,at=sum': kill has no 'at=sum'; valid are step");
  EXPECT_EQ(error("stall:worker=1,step=2,seconds=1,at=sum"),
            "[chaos] 'stall:worker=1,step=2,seconds=1,at=sum': stall has no 'at=sum'; valid are worker, step, "
            "seconds");
  EXPECT_EQ(error("join:step=2,stp=3"), "[chaos] 'join:step=2,stp=3': join has no 'stp=3'; did you mean 'step'?");
  EXPECT_EQ(error("join:step=2,step=3"), "[chaos] 'join:step=2,step=3': join has no 'step=3'; did you mean 'step'?");
  EXPECT_EQ(error("stall:all,step=1,seconds=1"),
            "[chaos] 'stall:all,step=1,seconds=1': expected worker=ID, 0 for the leader, got none");
  EXPECT_EQ(error("random:seed=1,rate=1.5"),
            "[chaos] 'random:seed=1,rate=1.5': expected rate=P from 0 to 1, got '1.5'");
  EXPECT_EQ(error("random:seed=1,rate=nan"),
            "[chaos] 'random:seed=1,rate=nan': expected rate=P from 0 to 1, got 'nan'");
  EXPECT_EQ(error("random:seed=1,rate=0;random:seed=2,rate=0"),
            "[chaos] 'random:seed=2,rate=0': expected one random, got two");
}

// Over many moments all kinds of faults occur with the requested frequency, and none that would end the run.
TEST(Chaos, RandomFaultsLeaveOneThatHasTheState) {
  const RandomFaults random{.seed = 3, .rate = 0.25};
  int64_t counts[4] = {}, moments = 0, long_stalls = 0;
  for (int64_t number = 0; number < 200000; ++number) {
    const Moment moment{Moment::What::step, number};
    if (!fault_happens_at(random, moment)) continue;
    ++moments;
    std::vector<Target> around;
    for (int i = 0; i < 1 + number % 6; ++i)
      around.push_back({.sound = i == 0 || (number >> i) % 3 != 0, .doomed = i > 0 && (number >> i) % 3 == 0 && i % 2});
    const size_t before = around.size();
    const std::vector<DrawnFault> faults = draw_faults(random, moment, around);
    size_t joins = 0;
    EXPECT_LE(faults.size(), 3u);
    for (const DrawnFault& fault : faults) {
      ++counts[static_cast<int>(fault.what)];
      EXPECT_GT(fault.after, 0);
      EXPECT_LE(fault.after, 0.021);
      long_stalls += fault.seconds > 3;  // longer than the limit of silence
      if (fault.what == Fault::What::join) {
        ++joins;
        continue;
      }
      ASSERT_LT(fault.target, before);
      EXPECT_FALSE(around[fault.target].doomed) << "it was hit before";
      if (fault.what != Fault::What::stall || fault.seconds > 3) around[fault.target].sound = false;
      around[fault.target].doomed = true;
    }
    EXPECT_TRUE(std::ranges::any_of(around, [](const Target& t) { return t.sound; }));
    EXPECT_TRUE(joins == 0 || before + joins <= kMostRandomWorkers);
  }
  EXPECT_NEAR(static_cast<double>(moments), 50000, 1000);  // 5 standard deviations, sqrt(200000 / 4 * 3 / 4) each
  for (const int64_t count : counts) EXPECT_GT(count, 5000);
  EXPECT_GT(long_stalls, 500);
}

struct RandomJob {
  std::string chaos;
  std::vector<std::string> options;
};

// The parameters that follow from a seed: workers at the start, transport, key, and the rate of faults.
RandomJob job_of(int64_t seed, const fs::path& folder) {
  const int64_t bits = seed * 2654435761 >> 3 & 0xffffff;  // neighbouring seeds differ in all of these
  const char* const rates[] = {"0.01", "0.03", "0.06"};
  RandomJob job;
  job.chaos = fmt::format("random:seed={},rate={}", seed, rates[bits % 3]);
  if (bits / 3 % 4 == 0) job.chaos += fmt::format(";kill:coordinator,step={}", 1 + bits / 50 % 150);
  if (bits / 12 % 6 == 0) job.chaos += fmt::format(";kill:all,step={}", 1 + bits / 70 % 150);
  if (bits / 5 % 6 == 0) job.chaos += fmt::format(";drop:worker=0,step={}", 1 + bits / 90 % 150);
  job.options = {"--workers", std::to_string(1 + bits / 72 % 4), "--chaos", job.chaos};
  if (bits / 288 % 3 == 0) job.options.insert(job.options.end(), {"--listen", "ipc://" + (folder / "socket").string()});
  else if (bits / 864 % 3 == 0) job.options.insert(job.options.end(), {"--key", folder / "key"});
  return job;
}

using ChaosJob = test::TinyJob;

TEST_F(ChaosJob, FaultsHappenWhereTheyWereAskedFor) {
  EXPECT_EQ(run_through("run", {"--workers", "3", "--chaos",
                                "kill:worker=2,step=20;stall:worker=0,step=40,seconds=0.1;join:step=50;"
                                "drain:worker=1,step=90;kill:worker=99,step=100"}),
            "");
  const std::vector<Json> faults = events("run", "cause");
  ASSERT_EQ(faults.size(), 5u);
  const char* const names[] = {"kill", "stall", "join", "drain", "kill"};
  const int64_t steps[] = {20, 40, 50, 90};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(faults[i].at("cause"), "chaos");
    EXPECT_EQ(faults[i].at("event"), names[i]);
    if (i < 4) {
      EXPECT_EQ(faults[i].at("step"), steps[i]);
    }
  }
  EXPECT_EQ(faults[0].at("worker"), 2);
  EXPECT_EQ(faults[4].at("missed"), "it is not around");
}

TEST_F(ChaosJob, AMessageThatIsLostIsMissed) {
  EXPECT_EQ(run_through("run", {"--workers", "3", "--chaos", "drop:worker=2,step=20;drop:worker=1,step=60"}), "");
  const std::vector<Json> lost = events("run", "cause"), stuck = events("run", "misses");
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0].at("event"), "drop");
  EXPECT_EQ(lost[0].at("worker"), 2);
  EXPECT_EQ(lost[0].at("step"), 20);
  ASSERT_EQ(stuck.size(), 2u);
  EXPECT_EQ(stuck[0].at("event"), "stuck");
  EXPECT_NE(stuck[0].at("misses"), "");
}

// The corruption that an audit must find: facts of all earlier steps are right, and those of all later ones wrong.
TEST_F(ChaosJob, AFlippedBitChangesWhatFollows) {
  const test::Ended ended = wait(start("run", {"--workers", "2", "--chaos", "flip:worker=2,step=30,bit=27"}), "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  const std::vector<std::string> right = test::lines_of(undisturbed()), wrong = test::lines_of(ledger("run"));
  ASSERT_EQ(right.size(), wrong.size());
  for (size_t step = 0; step < right.size(); ++step)  // the header precedes the first step
    EXPECT_EQ(right[step] == wrong[step], step < 30) << "step " << step;
  const std::vector<Json> faults = events("run", "cause");
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].at("event"), "flip");
  EXPECT_EQ(faults[0].at("bit"), 27);
}

// Across ends of epochs, short batches and changes of the number of workers.
TEST_F(ChaosJob, EachSampleIsConsumedOnceAnEpoch) {
  size_t generations = 0;
  for (const char* seed : {"11", "12", "13"}) {
    const std::string random = std::string("random:seed=") + seed + ",rate=0.05";
    EXPECT_EQ(run_through(seed, {"--workers", "2", "--chaos", random + ";kill:coordinator,step=50;kill:all,step=100"}),
              "");
    expect_each_sample_once_an_epoch(consumed(seed));
    generations += events(seed, "members").size();
  }
  EXPECT_GE(generations, 9u);
}

TEST_F(ChaosJob, EverybodyDiesAndItGoesOn) {
  EXPECT_EQ(run_through("run", {"--workers", "3", "--chaos", "kill:all,step=70;kill:coordinator,step=100"}), "");
  EXPECT_EQ(events("run", "cause").size(), 4u);
}

// ELINVAR_CHAOS sets the number of schedules (tools/soak runs 200, or any number), ELINVAR_CHAOS_SEED the first, and
// ELINVAR_CHAOS_KEEP the folder for failed runs.
TEST_F(ChaosJob, RandomSchedulesEndAsTheUndisturbedRun) {
  const bool soak = std::getenv("ELINVAR_CHAOS") != nullptr;
  const int64_t count = test::from_environment("ELINVAR_CHAOS", 8),
                first = test::from_environment("ELINVAR_CHAOS_SEED", 0);
  ASSERT_EQ(wait(spawn({"keygen", folder_ / "key"})).code, 0);
  const auto began = Clock::now();
  size_t faults = 0;
  int failures = 0;
  for (int64_t n = 0; n < count && failures < 5; ++n) {
    const int64_t seed = first + n;
    const RandomJob job = job_of(seed, folder_ / "");
    const std::string name = fmt::format("seed{}", seed);
    const auto start = Clock::now();
    const std::string wrong = run_through(name, job.options);
    const std::chrono::duration<double> took = Clock::now() - start, all = Clock::now() - began;
    const size_t struck = events(name, "cause").size();
    faults += struck;
    if (soak)
      fmt::print(stderr, "schedule {} of {}, seed {}: {} faults in {:.1f} s{}; {:.0f} s left\n", n + 1, count, seed,
                 struck, took.count(), wrong.empty() ? "" : ", FAILED",
                 all.count() / static_cast<double>(n + 1) * static_cast<double>(count - n - 1));
    if (!wrong.empty()) {
      ++failures;
      std::string kept;
      if (const char* keep = std::getenv("ELINVAR_CHAOS_KEEP")) {
        fs::create_directories(keep);
        fs::copy(folder_ / name, fs::path(keep) / name,
                 fs::copy_options::recursive | fs::copy_options::overwrite_existing);
        fs::copy(folder_ / (name + ".err"), fs::path(keep) / (name + ".err"), fs::copy_options::overwrite_existing);
        kept = fmt::format("\nkept in {}", (fs::path(keep) / name).string());
      }
      ADD_FAILURE() << wrong << "\nseed " << seed << ", " << job.chaos << "\nrepeat it with: tools/soak 1 --seed "
                    << seed << kept;
      kill_children();
    }
    fs::remove_all(folder_ / name);
  }
  EXPECT_GT(faults, static_cast<size_t>(std::min<int64_t>(count, 100)) / 2);
}

}  // namespace
}  // namespace elinvar
