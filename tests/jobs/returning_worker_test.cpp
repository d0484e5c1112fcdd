// Workers that were evicted although they live.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;

class Returning : public test::TinyJob {
 protected:
  // Returns whether this many events of this name occur within half a minute.
  bool happens(const std::string& name, size_t times = 1) const {
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    while (std::chrono::steady_clock::now() < deadline) {
      size_t seen = 0;
      for (const nlohmann::json& e : events("run", "event")) seen += e["event"] == name;
      if (seen >= times) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
  pid_t start_endless(const std::vector<std::string>& more) const {
    std::vector<std::string> options = {"--steps", "1000000000", "--set", "run.checkpoint_every=1000000"};
    options.insert(options.end(), more.begin(), more.end());
    return start("run", options);
  }
  void stop(pid_t job) const {
    EXPECT_EQ(wait(spawn({"ctl", folder_ / "run", "stop"}, "ctl"), "ctl").code, 0);
    const test::Ended ended = wait(job, "run");
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_NE(ended.err.find("with a checkpoint"), std::string::npos) << ended.err;
  }
};

TEST_F(Returning, AWorkerThatWasSilentComesBackAsANewOne) {
  const pid_t job = start_endless({"--workers", "1"});
  ASSERT_TRUE(happens("generation"));
  const pid_t other = spawn({"join", folder_ / "run", "--threads", "1"}, "other");
  ASSERT_TRUE(happens("switched"));
  kill(other, SIGSTOP);
  EXPECT_TRUE(happens("lost"));
  kill(other, SIGCONT);
  EXPECT_TRUE(happens("switched", 2)) << "it has not come back";
  stop(job);
  const test::Ended ended = wait(other, "other");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("as a new worker (1 of at most 3 times)"), std::string::npos) << ended.err;
}

TEST_F(Returning, AJobThatHoldsForAnotherWorkerCanBeStopped) {
  const pid_t job = start_endless({"--workers", "2", "--min-workers", "2"});
  reach("run", 10);
  const nlohmann::json workers = status("run").at("workers");
  ASSERT_EQ(workers.size(), 2u);
  kill(workers[1].at("about").at("pid").get<pid_t>(), SIGKILL);
  EXPECT_TRUE(happens("hold"));
  const nlohmann::json holding = status("run");
  EXPECT_EQ(holding.at("phase"), "holding");
  EXPECT_EQ(holding.at("holding").at("reason"), "fewer than 2 workers");
  stop(job);
}

}  // namespace
}  // namespace elinvar
