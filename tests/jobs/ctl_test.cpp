// Requests to a running job by `train ctl`: their answers and their effects.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "comm/zmq_transport.h"
#include "elastic/protocol/message.h"
#include "tensor/base/file.h"
#include "tests/jobs/train_command.h"

namespace elinvar {
namespace {

using test::Ended;

class Ctl : public test::TrainCommand {
 protected:
  // Starts a job that would take hours, and writes a checkpoint only when it is asked to.
  pid_t start_job(const std::string& workers) const {
    const pid_t job = start({"run", folder_ / "images.toml", "--run-dir", folder_ / "run", "--steps", "100000000",
                             "--set", "run.checkpoint_every=0", "--workers", workers});
    reach("run", 5);
    return job;
  }
  Ended ctl(std::vector<std::string> request) const {
    request.insert(request.begin(), {"ctl", folder_ / "run"});
    return wait(spawn(std::move(request), "ctl"), "ctl");
  }
  void expect_answer(const std::vector<std::string>& request, const std::string& answer) const {
    const Ended ended = ctl(request);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.out, answer + "\n");
  }
  void expect_refused(const std::vector<std::string>& request, const std::string& reason) const {
    const Ended ended = ctl(request);
    EXPECT_NE(ended.code, 0) << ended.out;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find(reason), std::string::npos) << ended.err;
  }
  bool told(const std::string& event) const {
    return read_file(folder_ / "run" / "events.jsonl").find("\"event\":\"" + event + "\"") != std::string::npos;
  }
  // Returns whether the condition holds within half a minute.
  template <class Condition>
  bool comes_true(Condition&& condition) const {
    for (int i = 0; i < 600; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
  // Returns whether the process has installed a handler of the signal.
  static bool handles(pid_t process, int signal) {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    for (std::string word; status >> word;)
      if (word == "SigCgt:" && status >> word) return std::stoull(word, nullptr, 16) >> (signal - 1) & 1;
    return false;
  }
  // Returns the numbers of the workers that take part.
  std::vector<int> members() const {
    std::vector<int> ids;
    for (const auto& worker : status("run").value("workers", nlohmann::json::array()))
      if (worker.at("state") == "member") ids.push_back(worker.at("id").get<int>());
    return ids;
  }
  // Kills the coordinator of a job that has a checkpoint, and suspends its last worker, which is returned.
  pid_t lose_coordinator(pid_t job) const {
    const nlohmann::json workers = status("run").at("workers");
    const auto silent = workers.back().at("about").at("pid").get<pid_t>();
    EXPECT_EQ(ctl({"checkpoint"}).code, 0);
    EXPECT_TRUE(comes_true([&] { return told("checkpoint"); }));
    ::kill(silent, SIGSTOP);
    ::kill(job, SIGKILL);
    (void)wait(job);
    return silent;
  }
  std::string goes_on() const {
    return "train resume " + (folder_ / "run").string() + " goes on from the checkpoint of step ";
  }
};

TEST_F(Ctl, TellsWhatFollowsAndItDoes) {
  const pid_t job = start_job("1");
  EXPECT_FALSE(told("checkpoint"));
  expect_answer({"checkpoint"}, "a checkpoint is requested; ctl status shows the event when it is saved");
  EXPECT_TRUE(comes_true([&] { return told("checkpoint"); }));

  expect_answer({"checkpoint", "--json"}, "{}");
  expect_answer({"scale", "3"}, "the job will have 3 workers; ctl status shows them");
  EXPECT_TRUE(comes_true([&] { return members().size() == 3; }));

  expect_answer({"drain", "1"}, "worker 1 will leave after this step");
  EXPECT_TRUE(comes_true([&] {
    const std::vector<int> left = members();
    return !left.empty() && std::find(left.begin(), left.end(), 1) == left.end();
  }));

  expect_answer({"stop"}, "the job is asked to stop; it ends with a checkpoint once its workers have agreed on a step");
  const Ended ended = wait(job);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("with a checkpoint; go on with\n"), std::string::npos) << ended.err;
  EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");
  expect_refused({"stop"}, "is over: interrupted at step ");
}

// A part of the run that is refused changes nothing about how the part before it ended.
TEST_F(Ctl, KnowsThatARunIsOverAfterARefusedResume) {
  ASSERT_EQ(run("images.toml", "run", {"--steps", "4"}).code, 0);
  expect_refused({"status"}, "is over: finished at step 4 of 4");
  for (int i = 0; i < 2; ++i) {
    const Ended refused = run("images.toml", "run", {"--steps", "4", "--resume", "--set", "run.seed=6"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("was started with another configuration"), std::string::npos) << refused.err;
    expect_refused({"status"}, "is over: finished at step 4 of 4");
  }
}

// Workers that have started count before they have introduced themselves, those that are about to leave do not.
TEST_F(Ctl, ScalesToTheNumberOfTheLastRequest) {
  const pid_t job = start_job("1");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ctl({"scale", "3"}).code, 0);
  EXPECT_TRUE(comes_true([&] { return members().size() == 3; }));
  EXPECT_EQ(members(), (std::vector<int>{1, 2, 3}));
  const auto silent = status("run").at("workers").at(0).at("about").at("pid").get<pid_t>();
  ::kill(silent, SIGSTOP);  // no step ends, so nobody leaves
  EXPECT_EQ(ctl({"scale", "1"}).code, 0);
  EXPECT_EQ(ctl({"scale", "3"}).code, 0);
  ::kill(silent, SIGCONT);
  EXPECT_TRUE(comes_true([&] { return members() == std::vector<int>{1, 4, 5}; }));
  // Workers that have only just started are ended as well.
  EXPECT_EQ(ctl({"scale", "6"}).code, 0);
  EXPECT_EQ(ctl({"scale", "2"}).code, 0);
  EXPECT_TRUE(comes_true([&] { return members() == std::vector<int>{1, 4}; }));
  EXPECT_TRUE(comes_true([&] { return status("run").at("workers").size() == 2; }));
  expect_refused({"scale", "1025"}, "at most 1024 workers, got 1025");
  expect_refused({"scale", "99999999999"}, "scale 99999999999: the number is too large");
  expect_refused({"drain", "99999999999"}, "drain 99999999999: the number is too large");
  expect_refused({"drain", "2147483647"}, "drain 2147483647: the number is too large");
  expect_refused({"drain", "--", "-3"}, "drain -3: expected a number from 0 on");
  EXPECT_EQ(ctl({"stop"}).code, 0);
  EXPECT_EQ(wait(job).code, 0);
}

TEST_F(Ctl, RefusesWhatTheJobCannotDo) {
  const pid_t job = start_job("1");
  expect_refused({"drain", "nobody"}, "no member is called 'nobody'");
  expect_refused({"drain", "7"}, "there is no worker 7");
  expect_refused({"drain"}, "drain WORKER expected: the number or the name of a worker");
  expect_refused({"scale", "0"}, "at least one worker");
  expect_refused({"scale"}, "scale N expected: the number of workers, got ''");
  expect_refused({"scale", "two"}, "scale N expected: the number of workers, got 'two'");
  for (const char* whole : {"stop", "checkpoint", "status"})
    expect_refused({whole, "2"}, std::string(whole) + " concerns the whole job: nothing may follow it, got '2'");
  expect_refused({"stop", "--watch"}, "--watch goes with status, not with stop");
  EXPECT_EQ(members(), std::vector<int>{1});
  EXPECT_EQ(ctl({"stop"}).code, 0);
  EXPECT_EQ(wait(job).code, 0);
}

TEST_F(Ctl, NamesAWorkerAsItWasAsked) {
  const pid_t job = start_job("1");
  const pid_t joined = spawn({"join", folder_ / "run", "--threads", "1", "--name", "guest"}, "guest");
  EXPECT_TRUE(comes_true([&] { return members().size() == 2; }));
  expect_answer({"drain", "guest"}, "worker guest will leave after this step");
  EXPECT_EQ(wait(joined, "guest").code, 0) << read_file(folder_ / "guest.err");
  EXPECT_EQ(members(), std::vector<int>{1});
  EXPECT_EQ(ctl({"stop"}).code, 0);
  EXPECT_EQ(wait(job).code, 0);
}

// A coordinator that has taken over is interrupted while it waits for workers of which one does not answer. That a
// request's connection is closed meanwhile is no loss of a worker.
TEST_F(Ctl, StoppingBeforeTheWorkersAreReadyClaimsNoCheckpoint) {
  const pid_t job = start_job("2");
  EXPECT_TRUE(comes_true([&] { return members().size() == 2; }));
  const pid_t silent = lose_coordinator(job);
  const pid_t next = spawn({"coordinate", folder_ / "run", "--term", "1"}, "next");
  EXPECT_TRUE(comes_true([&] { return status("run").value("phase", "") == "gathering"; }));
  ::kill(next, SIGINT);
  const Ended ended = wait(next, "next");
  ::kill(silent, SIGKILL);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.err.find("with a checkpoint; go on with"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("stopped before the workers were ready, without another checkpoint: " + goes_on()),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");
}

TEST_F(Ctl, ARequestWaitsForTheWorkerThatTakesOver) {
  const pid_t job = start_job("2");
  EXPECT_TRUE(comes_true([&] { return members().size() == 2; }));
  ::kill(job, SIGKILL);
  (void)wait(job);
  const Ended ended = ctl({"stop"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("no coordinator answers; if workers are left, one of them takes over"), std::string::npos)
      << ended.err;
  EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");
  const auto result = nlohmann::json::parse(read_file(folder_ / "run" / "result.json"));
  EXPECT_GE(result.at("step").get<int>(), 5);
  EXPECT_TRUE(told("checkpoint"));
}

// A coordinator that ends closes its inbox before the last answer has arrived.
TEST_F(Ctl, AnAnswerMayComeAfterTheEndOfTheConnection) {
  const auto soon = [] { return Transport::Clock::now() + std::chrono::seconds(20); };
  std::unique_ptr<Transport> job = make_zmq_transport();
  const pid_t asking = spawn({"ctl", job->endpoint(), "stop"}, "ctl");
  const Arrival asked = job->wait(soon());
  ASSERT_EQ(asked.what, Arrival::What::message);
  const Message request = message_of(asked.packet);
  job.reset();
  const std::unique_ptr<Transport> answering = make_zmq_transport();
  answering->connect(request.sender, request.as<messages::Ctl>()->endpoint);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  answering->send(request.sender, packet_of({.sender = 1, .payload = messages::Answer{}}, /*run=*/0));
  const Ended ended = wait(asking, "ctl");
  EXPECT_EQ(ended.code, 0) << ended.err;
}

TEST_F(Ctl, AnInterruptionBeforeAWorkerIsReadySaysHowToGoOn) {
  const pid_t silent = lose_coordinator(start_job("1"));
  const pid_t next = spawn({"coordinate", folder_ / "run", "--term", "1"}, "next");
  EXPECT_TRUE(comes_true([&] { return handles(next, SIGINT); }));
  ::kill(next, SIGINT);
  const Ended ended = wait(next, "next");
  ::kill(silent, SIGKILL);
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("interrupted before a worker was ready; " + goes_on()), std::string::npos) << ended.err;
  EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");
}

}  // namespace
}  // namespace elinvar
