// `repro report`: the contents of a run's page. Its appearance was checked in a browser.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <memory>
#include <regex>

#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"
#include "tools/cli/program_beside.h"

namespace elinvar::test {
namespace {

using Json = nlohmann::json;

Ended repro(const std::string& arguments) {
  const std::string command = program_beside("repro").string() + " " + arguments + " 2>&1";
  Ended ended;
  FILE* const pipe = ::popen(command.c_str(), "r");
  char bytes[4096];
  for (size_t n = 0; pipe && (n = std::fread(bytes, 1, sizeof bytes, pipe)) > 0;) ended.out.append(bytes, n);
  const int status = pipe ? ::pclose(pipe) : -1;
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

// Returns the data of a page. Returns null and fails the test if the page is incomplete.
Json data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const size_t from = page.find(begin), to = page.find("</script>", from);
  EXPECT_NE(from, std::string::npos);
  EXPECT_NE(to, std::string::npos);
  if (from == std::string::npos || to == std::string::npos) return {};
  EXPECT_NE(page.find("</html>", to), std::string::npos);
  return Json::parse(page.substr(from + begin.size(), to - from - begin.size()));
}

class Report : public testing::Test {
 protected:
  // Returns the data of the page of the run in the folder `run`.
  Json report(const std::string& more = "") {
    folder_.write("run/ledger.jsonl", "");
    const std::string html = (folder_ / "page.html").string();
    const Ended ended = repro("report " + (folder_ / "run").string() + " --html " + html + more);
    EXPECT_EQ(ended.code, 0) << ended.out;
    said_ = ended.out;
    page_ = read_file(html);
    return data_of(page_);
  }
  TemporaryFolder folder_;
  std::string said_, page_;
};

std::string metric(int step, double loss, const std::string& more = "") {
  return Json{{"step", step}, {"loss", loss}, {"lr", 0.1}, {"samples_per_second", 10.0}, {"generation", 1}}.dump() +
         more + "\n";
}

std::string event(const std::string& time, const std::string& name, Json fields = Json::object()) {
  fields.update({{"time", time}, {"event", name}});
  return fields.dump() + "\n";
}

std::string record(int number, int follows, const std::vector<std::pair<int, uint64_t>>& members) {
  Json json = {{"number", number},    {"run", 1},      {"first_step", 0}, {"follows", follows},      {"next_id", 9},
               {"checkpoint", false}, {"stop", false}, {"reason", ""},    {"members", Json::array()}};
  int first = 0;
  for (const auto& [id, peer] : members) {
    const Json share = {{first, first + 2}};
    first += 2;
    json["members"].push_back(
        {{"id", id}, {"peer", peer}, {"endpoint", "e"}, {"share", share}, {"first_share", share}});
  }
  return json.dump();
}

class ReportOfAJob : public TinyJob {};

TEST_F(ReportOfAJob, TellsOfItsStepsItsEndAndItsDead) {
  ASSERT_EQ(run_through("run", {"--workers", "2", "--chaos", "kill:worker=2,step=40"}), "");
  const std::string run = (folder_ / "run").string(), html = (folder_ / "page.html").string();
  const Ended ended = repro("report " + run + " --html " + html + " --against " + run);
  ASSERT_EQ(ended.code, 0) << ended.out;
  const std::string page = read_file(html);
  // The page loads nothing; the only address is the name of SVG's namespace.
  const std::regex address("(https?:)?//[a-z0-9.]+\\.[a-z]+[^\"]*");
  const std::string script = page.substr(0, page.find("<script type")) + page.substr(page.rfind("<script>"));
  for (std::sregex_iterator at(script.begin(), script.end(), address), end; at != end; ++at)
    EXPECT_EQ(at->str(), "http://www.w3.org/2000/svg");
  EXPECT_EQ(page.find("@STYLE@"), std::string::npos);
  EXPECT_EQ(page.find("@SCRIPT@"), std::string::npos);

  const Json data = data_of(page);
  EXPECT_EQ(data["problems"], Json::array());
  EXPECT_EQ(data["verdict"]["verdict"], "equal");
  EXPECT_TRUE(data["verdict"]["text"].get<std::string>().starts_with("equal: steps 1 to 150"));
  ASSERT_EQ(data["environments"].size(), 1u) << "both workers have the same";
  EXPECT_EQ(data["environments"][0]["workers"], (Json{1, 2}));
  EXPECT_EQ(data["environments_left_out"], 0);
  EXPECT_EQ(data["status"]["what"], "finished");
  EXPECT_EQ(data["status"]["step"], kSteps);
  const Json result = Json::parse(read_file(folder_ / "run" / "result.json"));
  EXPECT_EQ(data["status"]["digest"], result["digest"]);
  EXPECT_EQ(data["curves"]["each"], 1);
  ASSERT_EQ(data["curves"]["step"].size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(data["curves"]["step"].back(), kSteps);
  EXPECT_TRUE(data["curves"]["seconds"].back().is_number());
  EXPECT_FALSE(data["validation"].empty());
  EXPECT_GT(data["step_time"]["seconds"].get<double>(), 0);
  EXPECT_EQ(data["step_time"]["workers"][0]["id"], 1);
  EXPECT_TRUE(data["time"]["lost"].contains("recovering")) << data["time"];
  EXPECT_NE(data["config"].get<std::string>().find("[run]"), std::string::npos);
  EXPECT_TRUE(data["environment"].contains("isa"));
  std::map<int, Json> workers;
  for (const Json& worker : data["timeline"]["workers"]) workers[worker["id"].get<int>()] = worker;
  ASSERT_TRUE(workers.contains(2));
  EXPECT_EQ(workers[2]["how"], "died");
  EXPECT_NE(workers[2]["reason"], "");
  EXPECT_EQ(workers[1]["how"], "ended");
  EXPECT_EQ(workers[1]["spans"].size(), 2u) << "alone it has all virtual ranks";
  EXPECT_EQ(data["timeline"]["bands"][0]["what"], "recovering");
  bool lost = false;
  for (const Json& e : data["events"]) lost = lost || e["event"] == "lost";
  EXPECT_TRUE(lost);
}

TEST_F(Report, LeavesOutWhatIsDamagedAndSaysSo) {
  folder_.write("run/metrics.jsonl",
                metric(1, 2) + "{\"step\":2,\"lo\n" + metric(3, 1) + metric(2, 9) + "[]\n" + R"({"step":4,"loss":)");
  folder_.write("run/events.jsonl", "\xff\xfe\n" + event("2026-05-04T10:00:00.000Z", "start") + "{\"event\":3}\n");
  folder_.write("run/result.json", "{\"status\":");
  folder_.write("run/environment.json", "");
  folder_.write("run/generations/1.json", "{}");
  folder_.write("run/config.toml", "name = \"</script><script>alert(1)</script>\"\n");
  const Json data = report();
  EXPECT_EQ(data["curves"]["step"], (Json{1, 3}));
  EXPECT_EQ(data["events"].size(), 1u);
  EXPECT_EQ(data["status"]["what"], "unfinished");
  EXPECT_EQ(data["config"], "name = \"</script><script>alert(1)</script>\"\n");
  const auto told = [&](const std::string& file) {
    return std::count_if(data["problems"].begin(), data["problems"].end(),
                         [&](const Json& problem) { return problem.get<std::string>().starts_with(file); });
  };
  EXPECT_EQ(told("ledger.jsonl: it has no whole line"), 1);
  EXPECT_EQ(told("metrics.jsonl, line 2: "), 1);
  EXPECT_EQ(told("metrics.jsonl, line 5: "), 1);
  EXPECT_EQ(told("events.jsonl, line "), 2);
  EXPECT_EQ(told("environment.json: "), 1);
  EXPECT_EQ(told("result.json: "), 1);
  EXPECT_EQ(told("generations/1.json: "), 1);
  EXPECT_EQ(data["problems"].size(), 8u) << data["problems"];
  for (const Json& problem : data["problems"]) EXPECT_NE(said_.find(problem.get<std::string>()), std::string::npos);
}

TEST_F(Report, OfARunThatHasDoneNothingYet) {
  const Json data = report();
  EXPECT_EQ(data["curves"]["step"], Json::array());
  EXPECT_EQ(data["timeline"]["workers"], Json::array());
  EXPECT_EQ(data["status"]["what"], "unfinished");
}

TEST_F(Report, RefusesWhatIsNoRun) {
  const std::string nothing = (folder_ / "nothing").string();
  const Ended ended = repro("report " + nothing + " --html " + (folder_ / "page.html").string());
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.out.find(nothing + " is no run directory"), std::string::npos) << ended.out;
  folder_.write("run/ledger.jsonl", "");
  const std::string run = "report " + (folder_ / "run").string();
  EXPECT_EQ(repro(run).code, 2) << "neither a page nor JSON";
  EXPECT_EQ(repro(run + " --json").code, 0);
  EXPECT_EQ(repro(run + " --json --verdict " + folder_.write("verdict", "equal")).code, 2);
}

TEST_F(Report, StaysSmallHoweverLongTheRun) {
  std::string metrics, events;
  constexpr int kLong = 60000;
  for (int step = 1; step <= kLong; ++step) metrics += metric(step, step == 40000 ? 99 : 1 + 1.0 / step);
  metrics += R"({"step":60001,"loss":null,"lr":0.1,"generation":1})"
             "\n";
  for (int i = 0; i < 8000; ++i)
    events += event("2026-05-04T10:00:00.000Z", i == 4000 ? "lost" : "checkpoint", {{"step", i}, {"state", "x"}});
  folder_.write("run/metrics.jsonl", metrics);
  folder_.write("run/events.jsonl", events);
  const Json data = report();
  EXPECT_LT(page_.size(), 400000u);
  const Json& curves = data["curves"];
  ASSERT_LE(curves["step"].size(), 1200u);
  EXPECT_GE(curves["step"].size(), 1000u);
  EXPECT_EQ(curves["step"].back(), kLong + 1);
  double most = 0;
  for (size_t i = 0; i < curves["loss"].size(); ++i) {
    if (curves["loss"][i].is_null()) continue;
    EXPECT_LE(curves["loss_low"][i].get<double>(), curves["loss"][i].get<double>() * (1 + 1e-4));
    EXPECT_GE(curves["loss_high"][i].get<double>(), curves["loss"][i].get<double>() * (1 - 1e-4));
    most = std::max(most, curves["loss_high"][i].get<double>());
  }
  EXPECT_EQ(most, 99);
  EXPECT_LE(data["events"].size(), 3000u);
  EXPECT_EQ(data["events"].size() + data["events_left_out"].get<size_t>(), 8000u);
  EXPECT_TRUE(
      std::any_of(data["events"].begin(), data["events"].end(), [](const Json& e) { return e["event"] == "lost"; }));
}

// The page stays small whatever the number of validations, workers and changes.
TEST_F(Report, StaysSmallHoweverMuchHappened) {
  constexpr int kMany = 2000;
  std::string metrics, events;
  for (int i = 1; i <= 2 * kMany; ++i)
    metrics +=
        Json{{"step", i}, {"validation_loss", 1.0 / i}, {"validation_accuracy", i == 777 ? 0.9 : 0.5}}.dump() + "\n";
  const auto at = [](int seconds) {
    return fmt::format("2026-05-04T{:02}:{:02}:{:02}.000Z", seconds / 3600, seconds / 60 % 60, seconds % 60);
  };
  events += event(at(0), "start");
  for (int i = 1; i <= kMany; ++i) {
    const auto peer = static_cast<uint64_t>(i + 100);
    folder_.write(fmt::format("run/generations/{}.json", i),
                  record(i, i - 1, {{1, 101}, {i + 1, peer + 1}, {i + 2, peer + 2}}));
    events += event(at(3 * i), "hello", {{"peer", peer}, {"environment", {{"host", fmt::format("host-{}", i)}}}}) +
              event(at(3 * i + 1), i == 1 ? "generation" : "switched", {{"number", i}, {"generation", i}}) +
              event(at(3 * i + 2), i % 2 == 0 ? "fence" : "heard", {{"reason", "worker left"}});
  }
  folder_.write("run/metrics.jsonl", metrics);
  folder_.write("run/events.jsonl", events);
  const Json data = report();
  EXPECT_LT(page_.size(), 1500000u);
  EXPECT_LE(data["validation"].size(), 1200u);
  EXPECT_GE(data["validation"].size(), 1000u);
  EXPECT_EQ(data["validation"].back()["step"], 2 * kMany);
  EXPECT_EQ(data["best_validation"]["step"], 777);
  const Json& line = data["timeline"];
  EXPECT_EQ(line["workers"].size(), 250u);
  EXPECT_GT(line["workers_left_out"].get<int>(), kMany / 2);
  size_t spans = 0;
  double reached = 0;
  for (const Json& worker : line["workers"]) {
    spans += worker["spans"].size();
    if (worker["id"] == 1) {
      EXPECT_EQ(worker["spans"].front()["from"], 4) << "of the first generation";
      for (size_t i = 1; i < worker["spans"].size(); ++i)
        EXPECT_EQ(worker["spans"][i - 1]["to"], worker["spans"][i]["from"]) << "without gaps";
      reached = worker["spans"].back()["to"].get<double>();
    }
  }
  EXPECT_GT(reached, 0) << "who was there longest is there";
  EXPECT_LE(spans, 2000u);
  EXPECT_LE(line["bands"].size(), 1100u);
  EXPECT_LE(data["environments"].size(), 30u);
  EXPECT_EQ(data["environments"].size() + data["environments_left_out"].get<size_t>(), static_cast<size_t>(kMany));
}

TEST_F(Report, NumbersThatNoShortOneStandsFor) {
  folder_.write("run/metrics.jsonl", R"({"step":1,"loss":1e-310,"lr":1.7976931348623157e308,"generation":1e300})"
                                     "\n"
                                     R"({"step":2,"loss":0.123456789,"lr":-4e-320,"generation":2})"
                                     "\n");
  const Json curves = report()["curves"];
  ASSERT_EQ(curves["step"], (Json{1, 2}));
  EXPECT_LT(curves["loss"][0].get<double>(), 2e-310);
  EXPECT_EQ(curves["loss"][1], 0.12346);
  EXPECT_GT(curves["lr"][0].get<double>(), 1.7e308);
}

// Worker 1 is killed with its coordinator; other workers continue three days later.
TEST_F(Report, CutsTheTimeBetweenTheEndOfARunAndItsResumption) {
  folder_.write("run/generations/1.json", record(1, 0, {{1, 11}, {2, 12}, {5, 15}}));
  folder_.write("run/generations/2.json", record(2, 0, {{3, 13}}));
  folder_.write("run/generations/3.json", record(3, 2, {{3, 13}, {4, 14}}));
  const std::string day = "2026-05-04T10:00:", later = "2026-05-07T10:00:";
  folder_.write(
      "run/events.jsonl",
      event(day + "00.000Z", "start") + event(day + "00.500Z", "hello", {{"peer", 11}}) +
          event(day + "00.500Z", "hello", {{"peer", 12}}) + event(day + "01.000Z", "generation", {{"number", 1}}) +
          event(day + "02.000Z", "lost", {{"peer", 15}, {"reason", "the audit: leaf 1 of update 7: ..."}}) +
          event(day + "03.000Z", "left", {{"worker", 2}}) + event(day + "10.000Z", "checkpoint", {{"step", 5}}) +
          event(later + "00.000Z", "resume") + event(later + "01.000Z", "start") +
          event(later + "02.000Z", "hello", {{"peer", 13}}) + event(later + "02.000Z", "generation", {{"number", 2}}) +
          event(later + "03.000Z", "hello", {{"peer", 14}}) + event(later + "04.000Z", "generation", {{"number", 3}}) +
          event(later + "06.000Z", "switched", {{"generation", 3}}) +
          event(later + "10.000Z", "failed", {{"reason", "the disk is full"}}));
  const Json data = report();
  const Json& line = data["timeline"];
  EXPECT_EQ(line["seconds"], 20);
  EXPECT_EQ(line["resumed"], Json{10});
  ASSERT_EQ(line["workers"].size(), 5u);
  const auto expect = [&](size_t i, int id, double from, double to, const std::string& how) {
    const Json& worker = line["workers"][i];
    EXPECT_EQ(worker["id"], id);
    EXPECT_EQ(worker["from"], from) << id;
    EXPECT_EQ(worker["to"], to) << id;
    EXPECT_EQ(worker["how"], how) << id;
  };
  expect(0, 1, 0.5, 10, "gone");
  expect(1, 2, 0.5, 3, "left");
  expect(2, 5, 1, 2, "evicted");
  expect(3, 3, 12, 20, "ended");
  expect(4, 4, 13, 20, "ended");
  EXPECT_EQ(line["workers"][4]["spans"][0]["from"], 16) << "it learns until the others switch";
  EXPECT_EQ(line["workers"][4]["spans"][0]["vranks"], (Json{{2, 4}}));
  EXPECT_EQ(data["time"]["parts"], 2);
}

TEST_F(Report, ShowsTheVerdictThatItIsGiven) {
  const std::string verdict = folder_.write("verdict", R"({"verdict":"violation","divergence":{"step":7}})");
  EXPECT_EQ(report(" --verdict " + verdict)["verdict"]["divergence"]["step"], 7);
}

}  // namespace
}  // namespace elinvar::test
