// Jobs whose workers differ in everything that must not matter: instruction sets, threads, transport, number.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <set>
#include <thread>

#include "tensor/isa.h"
#include "tests/jobs/tiny_job.h"
#include "tests/jobs/train_command.h"
#include "tests/support/other_devices.h"

namespace elinvar {
namespace {

using test::TinyJob;

// A job whose numerics are the parameter.
class MixedJob : public TinyJob, public ::testing::WithParamInterface<std::string> {
 protected:
  MixedJob() : TinyJob("numerics = \"" + GetParam() + "\"\n") {}
};
INSTANTIATE_TEST_SUITE_P(, MixedJob, ::testing::Values("portable", "exact"),
                         [](const auto& param) { return param.param; });

TEST_P(MixedJob, AnyWorkersOfAnyKindGiveTheSameLedger) {
  const std::vector<Isa> isas = available_isas();
  for (const std::string scheme : {"tcp", "ipc"}) {
    for (const int workers : {1, 2, 3, 4, 5, 7, 8}) {
      const std::string name = scheme + std::to_string(workers);
      const auto kind = [&](int i) -> std::vector<std::string> {
        const std::string listen =
            scheme == "tcp" ? "tcp://127.0.0.1:0" : "ipc://" + (folder_ / (name + std::to_string(i))).string();
        const Isa isa = isas[static_cast<size_t>(i + workers) % isas.size()];
        return {"--isa", name_of(isa), "--threads", std::to_string(1 + i % 3), "--listen", listen};
      };
      std::vector<std::string> options = {"--workers", "1", "--min-workers", std::to_string(workers)};
      const std::vector<std::string> first = kind(0);
      options.insert(options.end(), first.begin(), first.end());
      const pid_t job = start(name, options);
      for (int i = 0; i < 1000 && !std::filesystem::exists(folder_ / name / "coordinator.json"); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::vector<pid_t> joined;
      for (int i = 1; i < workers; ++i) {
        std::vector<std::string> arguments = kind(i);
        arguments.insert(arguments.begin(), {"join", endpoint(name)});
        joined.push_back(spawn(arguments, name + std::to_string(i)));
      }
      const test::Ended ended = wait(job, name);
      EXPECT_EQ(ended.code, 0) << ended.err;
      EXPECT_EQ(ledger(name), undisturbed()) << name;
      for (int i = 1; i < workers; ++i) {
        const std::string which = name + std::to_string(i);
        const test::Ended worker = wait(joined[static_cast<size_t>(i - 1)], which);
        EXPECT_EQ(worker.code, 0) << worker.err;
      }
      const auto generations = events(name, "members");
      ASSERT_FALSE(generations.empty());
      EXPECT_EQ(generations[0].at("members").size(), static_cast<size_t>(workers)) << "all were there from the start";
    }
  }
}

TEST_P(MixedJob, TheyGoOnWithoutAWorkerThatIsKilled) {
  EXPECT_NE(undisturbed().find(fmt::format(R"("numerics":"{}")", GetParam())), std::string::npos);
  const std::vector<Isa> isas = available_isas();
  const pid_t job = start("killed", {"--workers", "1", "--min-workers", "3", "--isa", name_of(isas[0]), "--chaos",
                                     "kill:worker=1,step=60"});
  for (int i = 0; i < 1000 && !std::filesystem::exists(folder_ / "killed" / "coordinator.json"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::vector<pid_t> joined;
  for (size_t i = 1; i <= 3; ++i)
    joined.push_back(
        spawn({"join", endpoint("killed"), "--threads", std::to_string(i), "--isa", name_of(isas[i % isas.size()])},
              "joined" + std::to_string(i)));
  const test::Ended ended = wait(job, "killed");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("killed"), undisturbed());
  int killed = 0;  // of those that joined: worker 1 is the first to arrive
  for (size_t i = 1; i <= 3; ++i) {
    const std::string name = "joined" + std::to_string(i);
    const test::Ended worker = wait(joined[i - 1], name);
    if (worker.code == 128 + SIGKILL) ++killed;
    else EXPECT_EQ(worker.code, 0) << worker.err;
  }
  EXPECT_LE(killed, 1);
  EXPECT_EQ(events("killed", "members").back().at("members").size(), 3u);
}

// Whole jobs with the kernels for GPUs, run by the CPU or a GPU.
class JobOfGpus : public TinyJob, public ::testing::WithParamInterface<Device> {
 protected:
  void SetUp() override {
    if (!test::is_here(GetParam())) GTEST_SKIP() << "this machine has no GPU";
    TinyJob::SetUp();
  }
  const std::string device_ = GetParam().kind == DeviceKind::cuda ? "cuda:0" : name_of(GetParam().kind);
};
INSTANTIATE_TEST_SUITE_P(, JobOfGpus, ::testing::ValuesIn(test::devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(JobOfGpus);

TEST_P(JobOfGpus, AloneItGivesTheSameLedger) {
  const test::Ended ended = wait(start("gpu", {"--device", device_}), "gpu");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("gpu"), undisturbed());
}

TEST_P(JobOfGpus, WithGraphsItGivesTheSameLedger) {
  const test::Ended ended = wait(start("graphs", {"--device", device_, "--set", "run.cuda_graphs=true"}), "graphs");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.err.find("without a graph"), std::string::npos) << ended.err;
  EXPECT_EQ(ledger("graphs"), undisturbed());
}

// Two workers are needed, so the remaining one holds until a GPU has received the state, however late.
TEST_P(JobOfGpus, TheyJoinCpuWorkersAndGoOnWithoutThem) {
  const pid_t job = start("both", {"--device", "cpu", "--workers", "2", "--min-workers", "2", "--chaos",
                                   "kill:worker=2,step=20;kill:worker=1,step=100"});
  reach("both", 5);
  std::vector<pid_t> gpus;
  for (const char* name : {"gpu1", "gpu2"})
    gpus.push_back(spawn({"join", endpoint("both"), "--device", device_}, name));
  const test::Ended ended = wait(job, "both");
  EXPECT_EQ(ended.code, 0) << ended.err;
  for (const size_t i : {0, 1}) EXPECT_EQ(wait(gpus[i], i == 0 ? "gpu1" : "gpu2").code, 0);
  EXPECT_EQ(ledger("both"), undisturbed());
  std::set<std::vector<int>> seen;
  for (const nlohmann::json& generation : events("both", "members"))
    seen.insert(generation.at("members").get<std::vector<int>>());
  EXPECT_TRUE(seen.contains({1, 2}) && seen.contains({3, 4}));
  EXPECT_TRUE(seen.contains({1, 3}) || seen.contains({1, 3, 4})) << "they have trained together";
}

TEST_P(JobOfGpus, ExactProductsGiveTheLedgerOfCpus) {
  const auto exact = [&](const std::string& name, const std::string& device, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--numerics", "exact", "--steps", "30", "--device", device});
    return start(name, more);
  };
  const auto expect_done = [&](pid_t job, const std::string& name) {
    const test::Ended ended = wait(job, name);
    EXPECT_EQ(ended.code, 0) << ended.err;
  };
  expect_done(exact("cpu", "cpu"), "cpu");
  EXPECT_EQ(recorded("cpu"), 30);
  EXPECT_NE(ledger("cpu"), undisturbed().substr(0, ledger("cpu").size()));
  expect_done(exact("graphs", device_, {"--set", "run.cuda_graphs=true"}), "graphs");
  EXPECT_EQ(ledger("graphs"), ledger("cpu"));
  const pid_t job = exact("both", "cpu", {"--workers", "2", "--min-workers", "3"});
  for (int i = 0; i < 1000 && !std::filesystem::exists(folder_ / "both" / "coordinator.json"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const pid_t joined = spawn({"join", endpoint("both"), "--device", device_}, "joined");
  expect_done(job, "both");
  expect_done(joined, "joined");
  EXPECT_EQ(ledger("both"), ledger("cpu"));
}

TEST_P(JobOfGpus, ExactAttentionGivesTheLedgerOfCpus) {
  folder_.write("text.toml", test::kTrainText);
  const auto text = [&](const std::string& name, const std::string& device, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"run", folder_ / "text.toml", "--run-dir", folder_ / name, "--threads", "1",
                               "--numerics", "exact", "--device", device});
    return spawn(more, name);
  };
  for (const auto& [name, device] : {std::pair<std::string, std::string>{"cpu", "cpu"}, {"gpu", device_}}) {
    const test::Ended ended = wait(text(name, device), name);
    EXPECT_EQ(ended.code, 0) << ended.err;
  }
  EXPECT_EQ(recorded("cpu"), 8);
  EXPECT_EQ(ledger("gpu"), ledger("cpu"));
  const test::Ended ended = wait(text("graphs", device_, {"--set", "run.cuda_graphs=true"}), "graphs");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("graphs"), ledger("cpu"));
}

}  // namespace
}  // namespace elinvar
