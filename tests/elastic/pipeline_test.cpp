#include "elastic/step/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

namespace elinvar {
namespace {

using Stages = std::vector<std::vector<Interval>>;
using Order = std::vector<std::vector<PipelinePass>>;

std::vector<int> ranks(int count) {
  std::vector<int> vranks(static_cast<size_t>(count));
  std::iota(vranks.begin(), vranks.end(), 0);
  return vranks;
}

// One segment for each stage.
Stages equal_stages(int stages) {
  Stages segments;
  for (int s = 0; s < stages; ++s) segments.push_back({{s, s + 1}});
  return segments;
}

// The last stage has the first segment too.
Stages tied_stages(int stages) {
  Stages segments;
  for (int s = 0; s < stages; ++s) segments.push_back({{s + 1, s + 2}});
  segments.back().insert(segments.back().begin(), {0, 1});
  return segments;
}

// Each stage makes its passes in order, each once its input is there. Returns how many can be made: whether stages wait
// for each other does not depend on how long passes take.
size_t executed(const std::vector<PipelineRun>& runs, const Order& order) {
  const auto last = static_cast<int>(runs.size()) - 1;
  std::set<std::tuple<int, int, bool>> made;  // by virtual rank, run and direction
  std::vector<size_t> next(order.size(), 0);
  const auto ready = [&](const PipelinePass& pass) {
    if (!pass.backward) return pass.run == 0 || made.contains({pass.vrank, pass.run - 1, false});
    return pass.run == last ? made.contains({pass.vrank, last, false})
                            : made.contains({pass.vrank, pass.run + 1, true});
  };
  for (bool any = true; any;) {
    any = false;
    for (size_t s = 0; s < order.size(); ++s)
      for (; next[s] < order[s].size() && ready(order[s][next[s]]); ++next[s]) {
        const PipelinePass& pass = order[s][next[s]];
        EXPECT_EQ(runs[static_cast<size_t>(pass.run)].stage, static_cast<int>(s)) << "a pass of another stage";
        EXPECT_TRUE(made.emplace(pass.vrank, pass.run, pass.backward).second) << "a pass made twice";
        any = true;
      }
  }
  return made.size();
}

// The largest number of rank gradients between their forward and backward passes through a run, by run.
std::vector<int> under_way(const std::vector<PipelineRun>& runs, const Order& order) {
  std::vector<int> now(runs.size(), 0), most(runs.size(), 0);
  for (const std::vector<PipelinePass>& stage : order)
    for (const PipelinePass& pass : stage) {
      int& n = now[static_cast<size_t>(pass.run)];
      n += pass.backward ? -1 : 1;
      most[static_cast<size_t>(pass.run)] = std::max(most[static_cast<size_t>(pass.run)], n);
    }
  return most;
}

TEST(Pipeline, RunsAreInTheOrderOfForwardPasses) {
  const Stages stages = {{{1, 3}}, {{3, 4}}, {{0, 1}, {4, 6}}};
  EXPECT_EQ(runs_of(stages), (std::vector<PipelineRun>{{2, {0, 1}}, {0, {1, 3}}, {1, {3, 4}}, {2, {4, 6}}}));
}

TEST(Pipeline, NoOrderHasADeadlock) {
  for (int stages = 1; stages <= 8; ++stages)
    for (const bool tied : {false, true})
      for (int vranks = 1; vranks <= 20; ++vranks) {
        const std::vector<PipelineRun> runs = runs_of(tied ? tied_stages(stages) : equal_stages(stages));
        const Order order = pipeline_order(runs, stages, ranks(vranks));
        ASSERT_EQ(order.size(), static_cast<size_t>(stages));
        ASSERT_EQ(executed(runs, order), 2 * runs.size() * static_cast<size_t>(vranks))
            << stages << " stages, " << vranks << " virtual ranks" << (tied ? ", tied" : "");
        const std::vector<int> most = under_way(runs, order);
        for (size_t r = 0; r < runs.size(); ++r)
          EXPECT_LE(most[r], std::min(vranks, static_cast<int>(runs.size() - r))) << "memory of run " << r;
      }
}

// Stages may also have several runs each, of any lengths.
TEST(Pipeline, NoRandomOrderHasADeadlock) {
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    const int stages = 1 + static_cast<int>(random() % 5);
    Stages segments(static_cast<size_t>(stages));
    int at = 0;
    for (int run = 0; run < stages + static_cast<int>(random() % 6); ++run) {
      const int end = at + 1 + static_cast<int>(random() % 4);
      segments[static_cast<size_t>(run < stages ? run : static_cast<int>(random() % static_cast<unsigned>(stages)))]
          .push_back({at, end});
      at = end;
    }
    const std::vector<PipelineRun> runs = runs_of(segments);
    std::vector<int> vranks = ranks(1 + static_cast<int>(random() % 12));
    for (int& vrank : vranks) vrank = 3 * vrank + 5;
    const Order order = pipeline_order(runs, stages, vranks);
    ASSERT_EQ(executed(runs, order), 2 * runs.size() * vranks.size());
    for (const std::vector<PipelinePass>& stage : order) {  // members of a stage exchange values in this order, too
      std::map<std::pair<int, bool>, int> before;
      for (const PipelinePass& pass : stage) {
        int& last = before.try_emplace({pass.run, pass.backward}, -1).first->second;
        EXPECT_GT(pass.vrank, last) << "virtual ranks come in order in each run and direction";
        last = pass.vrank;
      }
    }
  }
}

// 1F1B: a stage begins with as many forward passes as there are stages from it on, and then alternates.
TEST(Pipeline, EqualStagesComputeOneForwardAndOneBackwardPassInTurn) {
  for (int stages = 1; stages <= 8; ++stages)
    for (int vranks = 1; vranks <= 20; ++vranks) {
      const std::vector<PipelineRun> runs = runs_of(equal_stages(stages));
      const Order order = pipeline_order(runs, stages, ranks(vranks));
      for (int s = 0; s < stages; ++s) {
        std::vector<PipelinePass> expected;
        const int ahead = std::min(vranks, stages - s);
        for (int v = 0; v < ahead; ++v) expected.push_back({v, s, false});
        for (int v = 0; v < vranks; ++v) {
          expected.push_back({v, s, true});
          if (v + ahead < vranks) expected.push_back({v + ahead, s, false});
        }
        EXPECT_EQ(order[static_cast<size_t>(s)], expected) << "stage " << s << " of " << stages;
      }
    }
}

// A head takes as long as several blocks, so stages that take equally long have different numbers of segments. The
// first segment of a tied network, which the last stage computes too, takes almost no time.
TEST(Pipeline, StagesThatTakeEquallyLongAreAllAtWorkWhateverTheirNumberOfSegments) {
  for (const bool tied : {false, true})
    for (int stages = 2; stages <= 4; ++stages)
      for (const int vranks : {4, 8, 16})
        for (const int length : {1, 5, 9}) {  // of all stages but the last one, which has two segments and a head
          Stages segments;
          int at = tied ? 1 : 0;
          for (int s = 0; s < stages; ++s) {
            const int segments_of_it = s + 1 < stages ? length : 3;
            segments.push_back({{at, at + segments_of_it}});
            at += segments_of_it;
          }
          if (tied) segments.back().insert(segments.back().begin(), {0, 1});
          const std::vector<PipelineRun> runs = runs_of(segments);
          std::vector<PassSeconds> seconds(runs.size(), {.forward = 1, .backward = 2, .sent = 0.003});
          if (tied) seconds[0] = {.forward = 0, .backward = 0.09, .sent = 0.003};
          const double least = (vranks + stages - 1) * 3;
          EXPECT_LT(pipeline_seconds(runs, seconds, stages, vranks), 1.05 * least)
              << stages << " stages of " << length << ", " << vranks << " virtual ranks, tied " << tied;
        }
}

TEST(Pipeline, WithoutVirtualRanksThereIsNothingToCompute) {
  const Order order = pipeline_order(runs_of(equal_stages(3)), 3, {});
  EXPECT_EQ(order, Order(3));
}

}  // namespace
}  // namespace elinvar
