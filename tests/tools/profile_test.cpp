// train run --profile: Perfetto and chrome://tracing can open the trace, the table adds up, and no bit of the run
// depends on it.
#include "tools/training/profiler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tensor/base/file.h"
#include "tensor/ops/matmul.h"
#include "tests/jobs/train_process.h"
#include "tools/training/profile_report.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using test::Ended;

// Checks the rules of the trace event format for what the profiler writes: metadata and complete events, in order of
// their beginning, nested in each thread, and a name for each process and thread. The names of a process are adjacent,
// because Perfetto gives a thread's name to the newest thread with its number.
void expect_well_formed(const OrderedJson& trace) {
  ASSERT_TRUE(trace.at("traceEvents").is_array());
  using Thread = std::pair<int, int>;
  std::set<int> processes, begun;
  int naming = -1;  // the process of the current names
  std::set<Thread> named, used;
  std::map<Thread, std::vector<std::pair<int64_t, int64_t>>> open;  // intervals, in nanoseconds
  for (const OrderedJson& event : trace["traceEvents"]) {
    SCOPED_TRACE(event.dump());
    ASSERT_TRUE(event.at("name").is_string() && !event["name"].get<std::string>().empty());
    const Thread thread = {event.at("pid").get<int>(), event.at("tid").get<int>()};
    if (event.at("ph") == "M") {
      ASSERT_TRUE(event.at("args").at("name").is_string());
      EXPECT_TRUE(thread.first == naming || begun.insert(thread.first).second);
      naming = thread.first;
      if (event["name"] == "process_name") processes.insert(thread.first);
      else named.insert(thread);
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    ASSERT_TRUE(event.at("cat").is_string());
    ASSERT_TRUE(event.at("ts").is_number() && event.at("dur").is_number());
    const int64_t begin = std::llround(event["ts"].get<double>() * 1000),
                  end = begin + std::llround(event["dur"].get<double>() * 1000);
    ASSERT_GE(begin, 0);
    ASSERT_GE(end, begin);
    used.insert(thread);
    auto& around = open[thread];
    while (!around.empty() && around.back().second <= begin) around.pop_back();
    if (!around.empty()) {
      ASSERT_GE(begin, around.back().first);
      ASSERT_LE(end, around.back().second) << "partly within another";
    }
    around.push_back({begin, end});
  }
  EXPECT_FALSE(used.empty());
  for (const Thread& thread : used) EXPECT_TRUE(named.contains(thread) && processes.contains(thread.first));
}

std::vector<OrderedJson> events_of(const OrderedJson& trace, const std::string& category) {
  std::vector<OrderedJson> found;
  for (const OrderedJson& event : trace["traceEvents"])
    if (event.value("cat", "") == category) found.push_back(event);
  return found;
}

TEST(ProfileWindow, IsReadAndMoved) {
  EXPECT_EQ(parse_profile_window("auto", 0), (ProfileWindow{10, 14}));
  EXPECT_EQ(parse_profile_window("auto", 500), (ProfileWindow{510, 514}));
  EXPECT_EQ(parse_profile_window("7", 500), (ProfileWindow{7, 7}));
  EXPECT_EQ(parse_profile_window("100-104", 0), (ProfileWindow{100, 104}));
  EXPECT_EQ(parse_profile_window((ProfileWindow{3, 4}).text(), 9), (ProfileWindow{3, 4}));
  for (const char* wrong : {"", "0", "5-4", "-3", "1-", "a", "1-2-3", "1.5", "my.toml"})
    EXPECT_THROW(parse_profile_window(wrong, 0), UsageError) << wrong;
  EXPECT_EQ(within({10, 14}, 100), (ProfileWindow{10, 14}));
  EXPECT_EQ(within({10, 14}, 12), (ProfileWindow{8, 12}));
  EXPECT_EQ(within({10, 14}, 3), (ProfileWindow{1, 3}));
}

TEST(Profiler, WatchesTheStepsOfItsWindow) {
  OrderedJson trace;
  int saved = 0;
  CpuStream alone(1);
  const StreamScope scope(alone);
  Profiler profile({2, 3}, {}, [&](const OrderedJson& made, int worker) {
    trace = made;
    EXPECT_EQ(worker, 7);
    ++saved;
  });
  const Tensor x = Tensor::zeros({4, 4});
  for (int64_t made = 0; made < 5; ++made) {
    profile.step(made, 7);
    const Activity outer("forward");
    (void)matmul(x, x);
    const Activity inner("waiting for data");
  }
  profile.finish();
  EXPECT_EQ(saved, 1);
  expect_well_formed(trace);
  const std::vector<OrderedJson> steps = events_of(trace, "step"), ops = events_of(trace, "op");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0]["args"]["step"], 2);
  EXPECT_EQ(steps[1]["args"]["step"], 3);
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0]["name"], "matmul");
  EXPECT_EQ(ops[0]["args"]["shapes"], "a (4, 4), b (4, 4)");
  EXPECT_EQ(events_of(trace, "activity").size(), 2u);
  EXPECT_EQ(events_of(trace, "wait").size(), 2u);
  EXPECT_GT(trace["otherData"]["workers"][0]["peak_gflop_per_s"], 0.0);
}

TEST(Profiler, ThreadsOfTheTeamAreSaidToBeAtTheOp) {
  OrderedJson trace;
  CpuStream team(3);
  const StreamScope scope(team);
  const Tensor a = Tensor::zeros({256, 256});
  Profiler profile({1, 1}, {}, [&](const OrderedJson& made, int) { trace = made; });
  profile.step(0, 1);
  for (int i = 0; i < 20; ++i) (void)matmul(a, a);
  profile.finish();
  expect_well_formed(trace);
  // A helper that comes too late finds its part done, so the number of participants is unknown.
  for (const OrderedJson& event : events_of(trace, "activity")) EXPECT_EQ(event["name"], "matmul");
}

// An activity within another, and ops in each: times are exclusive and add up to the step.
TEST(ProfileTable, TellsWhereAStepsTimeGoes) {
  const auto event = [](const char* name, const char* category, double begin, double time, OrderedJson args = nullptr,
                        int thread = 1) {
    OrderedJson json = {{"name", name}, {"cat", category}, {"ph", "X"}, {"ts", begin}, {"dur", time}, {"pid", 1}};
    json["tid"] = thread;
    if (!args.is_null()) json["args"] = std::move(args);
    return json;
  };
  const auto name = [](int thread, const char* text) {
    return OrderedJson{{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", thread}, {"args", {{"name", text}}}};
  };
  const OrderedJson product = {{"gflop", 0.05}, {"mbyte", 4.0}};
  const OrderedJson trace = {
      {"otherData",
       {{"workers", OrderedJson::array({{{"worker", 1},
                                         {"threads", 2},
                                         {"device", "cpu"},
                                         {"isa", "avx2"},
                                         {"peak_gflop_per_s", 100.0},
                                         {"events_left_out", 0}}})}}},
      {"traceEvents",
       {name(1, "loop"), name(2, "team"), event("step", "step", 0, 10000, {{"step", 10}}),  // microseconds
        event("forward", "activity", 1000, 4000), event("matmul", "op", 1500, 1000, product),
        event("waiting for data", "wait", 3000, 500), event("update", "activity", 6000, 2000),
        event("sgd", "op", 6000, 1500, {{"mbyte", 6.0}}), event("matmul", "activity", 1500, 900, nullptr, 2)}}};
  const std::string table = profile_table(trace);
  for (const char* line :
       {"profile of steps 10 to 10: 1 worker of 2 threads, cpu, avx2; a step takes 10.0 ms; at most 100.0 GFLOP/s of",
        "\nother                                               4.00  40.0 %\n",
        "\nforward                                             3.50  35.0 %\n",
        "\nupdate                                              2.00  20.0 %\n",
        "\nwaiting for data                                    0.50   5.0 %\n",
        "\nmatmul                       forward                1.00  10.0 %      1.0     50.0   50 %     4.0\n",
        "\nsgd                          update                 1.50  15.0 %      1.0        -      -     4.0\n",
        "\nno op                                               7.50  75.0 %\n",
        "\nother threads are busy: team 9.0 %\n"})
    EXPECT_NE(table.find(line), std::string::npos) << line << "\nin\n" << table;
}

const char* const kJob = R"([run]
steps = 20
batch_size = 4
virtual_ranks = 2
checkpoint_every = 12

[data]
kind = "synthetic_text"
size = 300
context = 32

[optimizer]
kind = "adamw"
lr = 0.01

[model]
kind = "gpt"
layers = 1
heads = 2
channels = 16
)";

class ProfiledRun : public testing::Test, protected test::TrainRuns {
 protected:
  void SetUp() override { folder_.write("job.toml", kJob); }
  Ended run(const std::string& name, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"run", folder_ / "job.toml", "--run-dir", folder_ / name});
    return wait(spawn(more));
  }
  OrderedJson trace(const std::string& name) const {
    return OrderedJson::parse(read_file(folder_ / name / "profile.json"));
  }
};

TEST_F(ProfiledRun, HasTheSameBitsAndATraceOfEachWorker) {
  const Ended plain = run("plain");
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_FALSE(fs::exists(folder_ / "plain" / "profile"));
  EXPECT_EQ(wait(spawn({"profile", folder_ / "plain"})).code, 2);

  const Ended alone = run("alone", {"--profile", "--threads", "2"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.last_line(), plain.last_line());
  EXPECT_EQ(ledger("alone"), ledger("plain"));
  EXPECT_NE(alone.out.find("profile of steps 10 to 14: 1 worker of 2 threads"), std::string::npos) << alone.out;
  const OrderedJson one = trace("alone");
  expect_well_formed(one);
  std::set<std::string> names, threads;
  for (const OrderedJson& event : one["traceEvents"]) {
    if (event.contains("cat")) names.insert(event["name"]);
    else if (event["name"] == "thread_name") threads.insert(event["args"]["name"]);
  }
  for (const char* name : {"step", "data", "making a batch", "forward", "backward", "reduction", "update", "digests",
                           "matmul", "self_attention_backward", "adam"})
    EXPECT_TRUE(names.contains(name)) << name;
  for (const OrderedJson& event : events_of(one, "activity"))
    if (event["name"] == "forward" || event["name"] == "backward") {
      const int vrank = event.value("args", OrderedJson::object()).value("vrank", -1);
      EXPECT_TRUE(vrank == 0 || vrank == 1) << event;
    }
  EXPECT_TRUE(threads.contains("loop")) << ::testing::PrintToString(threads);
  EXPECT_EQ(events_of(one, "step").size(), 5u);

  const Ended two = run("two", {"--profile=3-4", "--workers", "2", "--threads", "1"});
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(ledger("two"), ledger("plain"));
  EXPECT_NE(two.out.find("profile of steps 3 to 4: 2 workers of 1 thread"), std::string::npos) << two.out;
  const OrderedJson both = trace("two");
  expect_well_formed(both);
  std::set<int> workers;
  for (const OrderedJson& step : events_of(both, "step")) workers.insert(step["pid"].get<int>());
  EXPECT_EQ(workers, (std::set<int>{1, 2}));

  const Ended again = wait(spawn({"profile", folder_ / "two"}));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(two.out.find(again.out.substr(0, again.out.find('\n'))), std::string::npos);
  EXPECT_EQ(trace("two"), both);
}

TEST_F(ProfiledRun, IsOfTheLastStepsOfAShortRunAndRefusesWhatIsNoStep) {
  const Ended shorter = run("run", {"--profile", "--steps", "6"});
  ASSERT_EQ(shorter.code, 0) << shorter.err;
  EXPECT_NE(shorter.out.find("profile of steps 2 to 6"), std::string::npos) << shorter.out;
  EXPECT_EQ(shorter.last_line().find("final step=6"), 0u);
  const Ended wrong = run("wrong", {"--profile=soon"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("--profile: steps expected"), std::string::npos) << wrong.err;
  EXPECT_FALSE(fs::exists(folder_ / "wrong"));
  replace_file(folder_ / "run" / "profile" / "worker-1.json", "{\"traceEvents\": [");
  const Ended damaged = wait(spawn({"profile", folder_ / "run"}));
  EXPECT_EQ(damaged.code, 3);
  EXPECT_NE(damaged.err.find("worker-1.json is no profile"), std::string::npos) << damaged.err;
}

}  // namespace
}  // namespace elinvar
