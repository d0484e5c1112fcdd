// A job whose workers are the stages of a pipeline: its arrangement in the terminal and on its page, with a step of its
// profile.
#include <set>

#include "elastic/run/run_record.h"
#include "tests/jobs/divided_runs.h"
#include "tools/repro/report_data.h"

namespace elinvar {
namespace {

using Ordered = nlohmann::ordered_json;
using test::Division;
using test::Ended;
using Words = std::vector<std::string>;

class ArrangementOfAJob : public test::DividedRuns {
 protected:
  void SetUp() override { folder_.write("job.toml", test::kDividedNetworks[0].text()); }
  Ordered report(const std::string& name) const { return report_data(RunRecord(folder_ / name)); }
};

TEST_F(ArrangementOfAJob, IsOnItsPage) {
  trained("run",
          Division{.tp = 1, .pp = 2, .zero = 1, .copies = 1}.complete({"--profile=3-7", "--set", "data.size=400"}));
  const Ordered page = report("run");
  EXPECT_EQ(page.at("problems"), Ordered::array());
  ASSERT_EQ(page.at("arrangement").at("generations").size(), 1u);
  const Ordered& generation = page["arrangement"]["generations"][0];
  EXPECT_EQ(generation.at("step"), 1);
  EXPECT_EQ(generation.at("text"),
            "1 model replica of 2 stages; zero=1: 1 copy of the optimizer's state among 2 workers");
  ASSERT_EQ(generation.at("replicas").size(), 1u);
  EXPECT_EQ(generation["replicas"][0].at("vranks"), (Ordered{{0, 3}}));
  const Ordered& stages = generation["replicas"][0].at("stages");
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_NEAR(stages[0].at("work").get<double>() + stages[1].at("work").get<double>(), 1, 1e-3);
  // The head reads the embeddings, so both are of the last stage.
  EXPECT_EQ(stages[0].at("names").get<std::string>().find("h."), 0u) << stages;
  EXPECT_TRUE(stages[1].at("names").get<std::string>().ends_with("head")) << stages;

  const Ordered& step = page.at("profile");
  EXPECT_GE(step.at("step").get<int>(), 3);
  EXPECT_LE(step.at("step").get<int>(), 7);
  ASSERT_EQ(step.at("rows").size(), 2u);
  for (const Ordered& row : step["rows"]) {
    std::map<std::string, std::multiset<int>> passes;  // the virtual ranks, by direction
    for (const Ordered& span : row.at("spans"))
      if (span.at(3) == 0)
        passes[step.at("names").at(span.at(0).get<size_t>()).at("kind")].insert(span.at(4).get<int>());
    // The last stage has two runs of segments: two passes of each kind for each virtual rank.
    const std::multiset<int> expected =
        row.at("stage") == 0 ? std::multiset<int>{0, 1, 2} : std::multiset<int>{0, 0, 1, 1, 2, 2};
    EXPECT_EQ(passes["forward"], expected) << row;
    EXPECT_EQ(passes["backward"], expected) << row;
  }
  for (const char* kind : {"forward", "backward", "wait", "exchange", "update"})
    EXPECT_GT(step.at("kinds").at(kind).get<double>(), 0) << kind;
  ASSERT_EQ(step.at("bubbles").size(), 1u);
  for (const char* which : {"measured", "predicted", "scheduled"}) {
    ASSERT_TRUE(step["bubbles"][0].at(which).is_number()) << which;
    EXPECT_GT(step["bubbles"][0][which].get<double>(), 0) << which;
    EXPECT_LT(step["bubbles"][0][which].get<double>(), 1) << which;
  }
}

TEST_F(ArrangementOfAJob, ThatIsNotDividedHasATimelineAlone) {
  trained("run", {"--profile=3-4", "--workers", "2"});
  const Ordered page = report("run");
  EXPECT_TRUE(page.at("arrangement").is_null());
  ASSERT_EQ(page.at("profile").at("rows").size(), 2u);
  EXPECT_EQ(page["profile"].at("bubbles"), Ordered::array());
  EXPECT_EQ(page["profile"]["rows"][0].at("stage"), nullptr);
  replace_file(folder_ / "run" / "profile" / "worker-1.json", "{\"traceEvents\": [");
  const Ordered damaged = report("run");
  EXPECT_TRUE(damaged.at("profile").is_null());
  ASSERT_EQ(damaged.at("problems").size(), 1u);
  EXPECT_NE(damaged["problems"][0].get<std::string>().find("worker-1.json is no profile"), std::string::npos);
}

// The text goes through a pipe or into a file as it is.
TEST_F(ArrangementOfAJob, IsInTheTerminal) {
  Words words = {"run", folder_ / "job.toml", "--run-dir", folder_ / "run", "--threads", "1", "--steps", "100000000"};
  for (const std::string& word : Division{.tp = 1, .pp = 2, .zero = 1}.complete()) words.push_back(word);
  const pid_t job = spawn(words, "run");
  reach("run", 3);
  const auto ctl = [&](Words request) {
    request.insert(request.begin(), {"ctl", folder_ / "run"});
    return wait(spawn(request, "ctl"), "ctl");
  };
  const std::string text = ctl({"status", "--arrangement"}).out;
  for (const char* expected :
       {": running, step ", "3 virtual ranks on 1 model replica of up to tp=1, pp=2\n",
        "zero=1: 2 copies of the optimizer's state\n", "\nmodel replica 0: virtual ranks 0-2; 100.0 % of a step\n",
        "\n  stage 0: segment", "\n  stage 1: segments 0, ", " to head); ", " % of a rank gradient\n    worker  state ",
        "\n         1  member ", "\n         2  member ", ", 100 %\n"})
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\nin\n" << text;
  for (const std::string& line : test::lines_of(text)) EXPECT_LE(line.size(), 100u) << line;
  const auto json = nlohmann::json::parse(ctl({"status", "--json"}).out);
  EXPECT_EQ(json.at("segments").back(), "head");
  double parts = 0;
  for (const auto& worker : json.at("workers")) {
    EXPECT_EQ(worker.at("ranks"), (nlohmann::json{{0, 3}}));
    parts += worker.at("part").get<double>();
  }
  EXPECT_NEAR(parts, 1, 1e-9);
  const Ended refused = ctl({"stop", "--arrangement"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("--arrangement goes with status, not with stop"), std::string::npos) << refused.err;
  EXPECT_EQ(ctl({"stop"}).code, 0);
  EXPECT_EQ(wait(job, "run").code, 0);
}

}  // namespace
}  // namespace elinvar
