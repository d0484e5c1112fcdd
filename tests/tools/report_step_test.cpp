// The timeline of a profiled step on the page of a run, and the bubbles of its pipelines.
#include "tools/repro/report_step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "elastic/step/pipeline.h"
#include "tools/repro/pipeline_bubble.h"

namespace elinvar {
namespace {

using Ordered = nlohmann::ordered_json;
using Passes = std::map<int, std::vector<PassSpan>>;

// Worker 1 computes segment 0, worker 2 segment 1.
Generation two_stages(double work = 0.5) {
  Generation g{.number = 4, .shards = 1};
  for (const int stage : {0, 1}) {
    GenerationMember member;
    member.id = stage + 1;
    member.share = {{0, 2}};
    member.place = {.stage = stage, .segments = {{stage, stage + 1}}, .work = stage == 0 ? work : 1 - work};
    g.members.push_back(member);
  }
  return g;
}

// Two rank gradients whose forward passes take a second, and backward passes two.
Passes two_gradients() {
  return {{1, {{0, false, 0, 1}, {1, false, 1, 2}, {0, true, 4, 6}, {1, true, 7, 9}}},
          {2, {{0, false, 1, 2}, {0, true, 2, 4}, {1, false, 4, 5}, {1, true, 5, 7}}}};
}

PipelineBubble bubble(const Generation& generation, const std::vector<double>& seconds, const Passes& passes) {
  const std::vector<PipelineBubble> all = pipeline_bubbles(generation, seconds, passes);
  EXPECT_EQ(all.size(), 1u);
  return all.empty() ? PipelineBubble{} : all[0];
}

// m rank gradients on P equal stages leave (P - 1) / (m + P - 1) of the time.
TEST(PipelineBubble, OfEqualStagesIsThatOfTheFormula) {
  const PipelineBubble b = bubble(two_stages(), {3, 3}, two_gradients());
  EXPECT_EQ(b.replica, 0);
  EXPECT_DOUBLE_EQ(b.measured, 1.0 / 3);
  EXPECT_DOUBLE_EQ(b.predicted.value(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(b.scheduled.value(), 1.0 / 3);
}

TEST(PipelineBubble, WaitsThatTheScheduleDoesNotExplainAreMeasuredAlone) {
  Passes passes = two_gradients();
  passes[1].back().begin += 1;
  passes[1].back().end += 1;
  const PipelineBubble b = bubble(two_stages(), {3, 3}, passes);
  EXPECT_DOUBLE_EQ(b.measured, 0.4);
  EXPECT_DOUBLE_EQ(b.predicted.value(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(b.scheduled.value(), 1.0 / 3);
}

TEST(PipelineBubble, IsPredictedFromSegmentsOrElseFromTheirPartsOfTheWork) {
  const std::vector<PipelineRun> runs = {{0, {0, 1}}, {1, {1, 2}}};
  const std::vector<PassSeconds> seconds = {{.forward = 1, .backward = 2}, {.forward = 3, .backward = 6}};
  const double expected = 1 - 2 * (3 + 9) / (2 * pipeline_seconds(runs, seconds, 2, 2));
  EXPECT_GT(expected, 0.34) << "unequal stages wait for each other";
  EXPECT_DOUBLE_EQ(bubble(two_stages(), {3, 9}, two_gradients()).predicted.value(), expected);
  EXPECT_NEAR(bubble(two_stages(0.25), {}, two_gradients()).predicted.value(), expected, 1e-12);
  EXPECT_DOUBLE_EQ(bubble(two_stages(0.5), {1, 2, 3}, two_gradients()).predicted.value(), 1.0 / 3);
}

// Passes send what they give half a second before they end.
TEST(PipelineBubble, PassesOverlapAsFarAsTheySendEarly) {
  Passes passes;
  passes[2] = {{0, false, 0.5, 1.5}, {0, true, 1.5, 3.5}, {1, false, 3.5, 4.5}, {1, true, 4.5, 6.5}};
  passes[1] = {{0, false, 0, 1}, {1, false, 1, 2}, {0, true, 3, 5}, {1, true, 6, 8}};
  const PipelineBubble b = bubble(two_stages(), {3, 3}, passes);
  EXPECT_DOUBLE_EQ(b.measured, 0.25);
  EXPECT_DOUBLE_EQ(b.scheduled.value(), 0.25);
  EXPECT_DOUBLE_EQ(b.predicted.value(), 1.0 / 3);
}

TEST(PipelineBubble, PassesInAnotherOrderHaveNoSchedule) {
  Passes passes = two_gradients();
  std::swap(passes[2][1].vrank, passes[2][3].vrank);
  EXPECT_FALSE(bubble(two_stages(), {3, 3}, passes).scheduled);
  passes[2].pop_back();
  EXPECT_FALSE(bubble(two_stages(), {3, 3}, passes).scheduled);
}

TEST(PipelineBubble, NoneWithoutStagesOrWithoutTheirPasses) {
  Generation g = two_stages();
  Passes passes = two_gradients();
  passes.erase(2);
  EXPECT_TRUE(pipeline_bubbles(g, {}, passes).empty());
  passes[2] = {};
  EXPECT_TRUE(pipeline_bubbles(g, {}, passes).empty());
  g.shards = 0;
  EXPECT_TRUE(pipeline_bubbles(g, {}, two_gradients()).empty());
}

class StepTimeline : public testing::Test {
 protected:
  void loop(int worker) {
    trace_["traceEvents"].push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", worker}, {"tid", 1}, {"args", {{"name", "loop"}}}});
  }
  // Times are in seconds.
  void event(int worker, const std::string& name, const std::string& category, double begin, double end,
             const Ordered& args = nullptr, int thread = 1) {
    Ordered json = {{"name", name},  {"cat", category}, {"ph", "X"}, {"ts", 1e6 * begin}, {"dur", 1e6 * (end - begin)},
                    {"pid", worker}, {"tid", thread}};
    if (!args.is_null()) json["args"] = args;
    trace_["traceEvents"].push_back(std::move(json));
  }
  void step(int worker, int number, double begin, double end) {
    event(worker, "step", "step", begin, end, {{"step", number}});
  }
  void passes(const Passes& passes, double later) {
    for (const auto& [worker, made] : passes)
      for (const PassSpan& p : made)
        event(worker, p.backward ? "backward" : "forward", "activity", later + p.begin, later + p.end,
              {{"vrank", p.vrank}});
  }
  Ordered shown(const Generation* generation = nullptr) const {
    return profiled_step(trace_, {}, [&](int64_t) { return generation; });
  }
  // The spans of a worker as texts.
  static std::vector<std::string> spans(const Ordered& step, size_t row) {
    std::vector<std::string> texts;
    for (const Ordered& s : step.at("rows").at(row).at("spans")) {
      const Ordered& name = step.at("names").at(s.at(0).get<size_t>());
      texts.push_back(fmt::format("{} {}: {} to {}, {} {}", name.at("kind").get<std::string>(),
                                  name.at("name").get<std::string>(), s.at(1).get<double>(), s.at(2).get<double>(),
                                  s.at(3).get<int>(), s.at(4).get<int>()));
    }
    return texts;
  }
  Ordered trace_ = {{"traceEvents", Ordered::array()}};
};

TEST_F(StepTimeline, ShowsPassesWholeAndElseTheInnermostActivity) {
  loop(1);
  step(1, 7, 10, 20);
  event(1, "data", "activity", 10, 11);
  event(1, "forward", "activity", 11, 13, {{"vrank", 5}});
  event(1, "exchange of shards", "activity", 12, 13);
  event(1, "waiting for workers", "wait", 12.5, 13);
  event(1, "backward", "activity", 13, 15, {{"vrank", 5}});
  event(1, "matmul", "op", 13, 14);
  event(1, "waiting for a stage", "wait", 15, 16);
  event(1, "waiting for workers", "wait", 15.25, 15.75);
  event(1, "reduction", "activity", 16, 19);
  event(1, "waiting for workers", "wait", 17, 18);
  event(1, "update", "activity", 19, 20);
  event(1, "saving the state", "activity", 12, 18, nullptr, 2);  // another thread
  const Ordered told = shown();
  EXPECT_EQ(told.at("step"), 7);
  EXPECT_EQ(told.at("seconds"), 10);
  EXPECT_TRUE(told.at("generation").is_null());
  EXPECT_EQ(spans(told, 0), (std::vector<std::string>{
                                "other data: 0 to 1, 0 -1", "forward forward: 1 to 3, 0 5",
                                "exchange exchange of shards: 2 to 2.5, 1 5", "wait waiting for workers: 2.5 to 3, 1 5",
                                "backward backward: 3 to 5, 0 5", "wait waiting for a stage: 5 to 6, 0 -1",
                                "exchange reduction: 6 to 7, 0 -1", "wait waiting for workers: 7 to 8, 0 -1",
                                "exchange reduction: 8 to 9, 0 -1", "update update: 9 to 10, 0 -1"}));
  const Ordered expected = {{"forward", 0.1},   {"backward", 0.2}, {"wait", 0.25},
                            {"exchange", 0.25}, {"update", 0.1},   {"other", 0.1}};
  EXPECT_EQ(told.at("kinds"), expected);
}

TEST_F(StepTimeline, IsOfTheMedianStepThatAllHaveSeen) {
  const Generation generation = two_stages();
  for (const int worker : {1, 2}) loop(worker);
  const double lengths[] = {9, 30, 10, 11};
  double begin = 0;
  for (int i = 0; i < 4; ++i) {
    for (const int worker : {1, 2})
      if (i < 3 || worker == 1) step(worker, 20 + i, begin, begin + lengths[i]);
    passes(two_gradients(), begin);
    begin += lengths[i];
  }
  const Ordered told = shown(&generation);
  EXPECT_EQ(told.at("step"), 22);
  EXPECT_EQ(told.at("generation"), 4);
  ASSERT_EQ(told.at("rows").size(), 2u);
  EXPECT_EQ(told.at("rows")[1].at("worker"), 2);
  EXPECT_EQ(told.at("rows")[1].at("stage"), 1);
  EXPECT_EQ(spans(told, 1).front(), "forward forward: 1 to 2, 0 0");
  const Ordered third = 0.33333,
                expected = {{"replica", 0}, {"measured", third}, {"predicted", third}, {"scheduled", third}};
  EXPECT_EQ(told.at("bubbles"), Ordered::array({expected}));
}

// Short spans are joined and left out, and passes are not, until they are too many: then workers are left out.
TEST_F(StepTimeline, StaysSmallHoweverMuchHappened) {
  constexpr int kWorkers = 80, kRanks = 100;
  for (int worker = 1; worker <= kWorkers; ++worker) {
    loop(worker);
    step(worker, 1, 0, kRanks + 1);
    for (int vrank = 0; vrank < kRanks; ++vrank) {
      event(worker, "backward", "activity", vrank, vrank + 0.9, {{"vrank", vrank}});
      for (int i = 0; i < 10; ++i) event(worker, "reduction", "activity", vrank + 0.08 * i, vrank + 0.08 * i + 0.001);
    }
  }
  const Ordered told = shown();
  size_t count = 0;
  for (const Ordered& row : told.at("rows")) count += row.at("spans").size();
  EXPECT_LE(count, 6000u);
  EXPECT_GE(told.at("rows").size(), 40u);
  EXPECT_EQ(told.at("rows").size() + told.at("rows_left_out").get<size_t>(), static_cast<size_t>(kWorkers));
  size_t whole = 0;
  for (const Ordered& s : told.at("rows")[0].at("spans")) whole += s.at(3) == 0;
  EXPECT_EQ(whole, static_cast<size_t>(kRanks));
}

TEST_F(StepTimeline, NoneOfAProfileWithoutAStep) {
  loop(1);
  event(1, "forward", "activity", 0, 1);
  EXPECT_TRUE(shown().is_null());
}

}  // namespace
}  // namespace elinvar
