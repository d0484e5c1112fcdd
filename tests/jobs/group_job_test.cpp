// Jobs of real processes whose workers are GPUs that exchange gradients by NCCL: emulated ones, and a card if the
// machine has one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

class GroupJob : public test::TinyJob {
 protected:
  int64_t count(const std::string& name, const std::string& plane) const {
    const std::vector<std::string> seen = planes(name);
    return std::count_if(seen.begin(), seen.end(), [&](const std::string& p) { return p.starts_with(plane); });
  }
  // Returns how each used group was made.
  std::vector<std::string> made(const std::string& name) const {
    std::vector<std::string> made;
    for (const Json& e : events(name, "group"))
      if (e.contains("plane")) made.push_back(e.at("group").get<std::string>());
    return made;
  }
  void expect_undisturbed(const std::string& name, pid_t job) const {
    const test::Ended ended = wait(job, name, std::chrono::seconds(120));
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ledger(name), undisturbed());
  }
};

#ifdef ELINVAR_EMULATION

const std::vector<std::string> kGpus = {"--device", "emulated", "--workers"};

std::vector<std::string> gpus(const std::string& workers, const std::vector<std::string>& more = {}) {
  std::vector<std::string> options = kGpus;
  options.push_back(workers);
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

TEST_F(GroupJob, GpusOfAGroupGiveTheSameLedger) {
  const pid_t job = start("run", gpus("3"));
  reach("run", 60);
  const Json status = this->status("run");
  expect_undisturbed("run", job);
  EXPECT_GE(count("run", "nccl"), 1);
  if (!status.empty()) {  // the job was still running
    EXPECT_TRUE(status.at("data_plane").contains("kind"));
  }
}

// A rank gradient is replayed, and its tensors stay for the group; with an exchange through the hosts they leave one by
// one.
TEST_F(GroupJob, MicroBatchesMayBeGraphs) {
  for (const std::string plane : {"auto", "host"}) {
    const std::vector<std::string> set = {"--set", "run.cuda_graphs=true", "--set", "run.data_plane='" + plane + "'"};
    expect_undisturbed(plane, start(plane, gpus("3", set)));
    EXPECT_EQ(count(plane, "nccl") > 0, plane == "auto");
  }
}

// Each GPU gets the sums of its buckets and sends their parameters; one dies while it does.
TEST_F(GroupJob, TheOptimizersStateMayBeSharded) {
  for (const std::string copies : {"1", "2"}) {
    const std::vector<std::string> options = gpus("3", {"--arrangement", "zero=1", "--copies", copies});
    expect_undisturbed("run" + copies, start("run" + copies, options));
    EXPECT_GE(count("run" + copies, "nccl: gradients, parameters"), 1);
  }
  EXPECT_EQ(run_through("killed", gpus("3", {"--arrangement", "zero=1", "--chaos",
                                             "kill:worker=2,step=70,at=value;join:step=80"})),
            "");
  EXPECT_EQ(events("killed", "at").size(), 1u);
  EXPECT_GE(count("killed", "nccl: gradients, parameters"), 2);
}

TEST_F(GroupJob, HostIfAsked) {
  expect_undisturbed("run", start("run", gpus("2", {"--set", "run.data_plane='host'"})));
  EXPECT_TRUE(planes("run").empty());
}

TEST_F(GroupJob, WhoCannotButMustIsRefused) {
  const test::Ended ended = wait(start("run", {"--set", "run.data_plane='nccl'"}), "run");
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("run.data_plane = \"nccl\", but this worker cannot: it computes on the CPU"),
            std::string::npos)
      << ended.err;
}

// After each change of members another group forms, and the exchange goes through the hosts meanwhile.
TEST_F(GroupJob, MembersDieJoinAndLeave) {
  EXPECT_EQ(run_through("run", gpus("3", {"--chaos", "kill:worker=2,step=40;join:step=60;drain:worker=1,step=110"})),
            "");
  EXPECT_GE(count("run", "nccl"), 2);
}

TEST_F(GroupJob, TheGroupOfThoseWhoStayIsMadeFromTheOneBefore) {
  // Groups form in parallel with the job. On a busy machine the job may end before the second group forms; then the
  // test tries again.
  const auto groups_of = [&](const std::string& name, const std::string& workers, const std::string& chaos,
                             const std::string& fault) {
    for (int attempt = 1;; ++attempt) {
      const std::string run = fmt::format("{}.{}", name, attempt);
      expect_undisturbed(run, start(run, gpus(workers, {"--chaos", chaos}), {"env", "ELINVAR_EMULATED_NCCL=" + fault}));
      if (made(run).size() > 1 || attempt == 5) return made(run);
    }
  };
  using Groups = std::vector<std::string>;
  EXPECT_EQ(groups_of("drained", "3", "drain:worker=2,step=50", ""), (Groups{"new", "shrunk"}));
  for (const std::string fault : {"no_shrink", "shrink_fails"})
    EXPECT_EQ(groups_of(fault, "3", "drain:worker=2,step=50", fault), (Groups{"new", "new"})) << fault;
  // A death during a transfer is a matter of chance; the ledger is the same.
  EXPECT_GE(groups_of("killed", "4", "kill:worker=2,step=50;kill:worker=4,step=51", "").size(), 2u);
}

TEST_F(GroupJob, AWorkerThatComputesOnTheCpuMakesThemGoThroughTheHosts) {
  const pid_t job = start("run", gpus("2", {"--min-workers", "2"}));
  reach("run", 5);
  const pid_t cpu = spawn({"join", endpoint("run"), "--device", "cpu", "--threads", "1"}, "cpu");
  expect_undisturbed("run", job);
  EXPECT_EQ(wait(cpu, "cpu").code, 0);
}

// The consequences of each kind of trouble; the bits are the same.
TEST_F(GroupJob, TroubleWithNcclEndsInTheHosts) {
  struct Case {
    std::string fault, timeout, told;
    bool used;
  };
  for (const Case& c :
       {Case{"missing", "30", "", false}, Case{"init_fails", "30", "cannot be connected", false},
        Case{"init_hangs", "0.1", "have not found each other", false},
        Case{"transfer_fails=40", "30", "told to fail", true}, Case{"transfer_breaks=40", "30", "told to fail", true},
        Case{"transfer_hangs=40", "1", "a transfer has not ended within", true}}) {
    const pid_t job = start(c.fault, gpus("1", {"--min-workers", "2", "--set", "run.group_timeout=" + c.timeout}));
    const pid_t other = spawn({"join", endpoint(c.fault), "--device", "emulated", "--threads", "1"}, "other",
                              {"env", "ELINVAR_EMULATED_NCCL=" + c.fault});
    expect_undisturbed(c.fault, job);
    EXPECT_EQ(wait(other, "other").code, 0);
    const std::vector<std::string> seen = planes(c.fault);
    const auto tells = [&](const std::string& p) { return p.find(c.told) != std::string::npos; };
    if (c.told.empty()) EXPECT_TRUE(seen.empty());
    else EXPECT_TRUE(std::any_of(seen.begin(), seen.end(), tells)) << c.fault << ": " << Json(seen).dump();
    EXPECT_EQ(count(c.fault, "nccl") > 0, c.used) << c.fault << ": " << Json(seen).dump();
  }
}

#endif

TEST_F(GroupJob, OnACard) {
  // NCCL takes seconds to connect two workers; 150 steps had ended before (H100).
  if (!run_on_a_card("run", {}, 8 * kSteps)) GTEST_SKIP() << "no GPU, or no NCCL";
  EXPECT_EQ(planes("run"), std::vector<std::string>{"nccl: gradients"});
}

}  // namespace
}  // namespace elinvar
