#include "elastic/step/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>

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

TEST(Pipeline, PassesEndInAnOrderThatAllStagesKeep) {
  for (const bool tied : {false, true})
    for (int stages = 2; stages <= 5; ++stages)
      for (int count : {1, 3, 8}) {
        SCOPED_TRACE(testing::Message() << stages << " stages, " << count << " virtual ranks, tied: " << tied);
        const std::vector<PipelineRun> runs = runs_of(tied ? tied_stages(stages) : equal_stages(stages));
        Order kept(static_cast<size_t>(stages));
        std::set<std::tuple<int, int, bool>> ended;
        for (const PipelinePass& pass : passes_by_end(runs, stages, ranks(count))) {
          kept[static_cast<size_t>(runs[static_cast<size_t>(pass.run)].stage)].push_back(pass);
          const int before = pass.backward ? pass.run + 1 : pass.run - 1;
          const bool has_input = before >= 0 && before < static_cast<int>(runs.size());
          EXPECT_TRUE(!has_input || ended.contains({pass.vrank, before, pass.backward})) << "its input comes later";
          ended.emplace(pass.vrank, pass.run, pass.backward);
        }
        EXPECT_EQ(kept, pipeline_order(runs, stages, ranks(count)));
      }
}

// Returns how long the stages take if a transfer takes both of them: a stage makes its transfers after a pass up to
// that of what the pass gives, and before a pass up to that of its input (StageExchange::transfers). Without `together`
// a value travels while its sender goes on.
double seconds_with_transfers(int stages, int count, const std::map<std::tuple<int, int, bool>, double>& seconds,
                              double travels, bool together) {
  using Key = std::tuple<int, int, bool>;
  const std::vector<PipelineRun> runs = runs_of(equal_stages(stages));
  const Order order = pipeline_order(runs, stages, ranks(count));
  const auto source = [](const PipelinePass& p) {
    return Key(p.vrank, p.backward ? p.run + 1 : p.run - 1, p.backward);
  };
  struct Act {
    std::optional<PipelinePass> pass;  // null: the transfer of ..
    Key given = {};
  };
  std::vector<std::vector<Key>> transfers(static_cast<size_t>(stages));
  for (const auto& [vrank, run, backward] : passes_by_end(runs, stages, ranks(count)))
    if (const int next = backward ? run - 1 : run + 1; next >= 0 && next < stages)
      for (const int stage : {run, next}) transfers[static_cast<size_t>(stage)].emplace_back(vrank, run, backward);
  std::vector<std::vector<Act>> acts(static_cast<size_t>(stages));
  for (size_t s = 0; s < acts.size(); ++s) {
    size_t made = 0;
    const auto up_to = [&](const Key& key) {
      const auto place = std::ranges::find(transfers[s], key);
      if (place == transfers[s].end()) return;
      for (const auto end = static_cast<size_t>(place - transfers[s].begin()) + 1; made < end; ++made)
        acts[s].push_back({{}, transfers[s][made]});
    };
    for (const PipelinePass& pass : order[s]) {
      if (together) up_to(source(pass));
      acts[s].push_back({pass, source(pass)});
      if (together) up_to({pass.vrank, pass.run, pass.backward});
    }
  }
  std::vector<double> now(acts.size(), 0);
  std::vector<size_t> next(acts.size(), 0);
  std::map<Key, double> arrives;
  std::map<Key, size_t> waits;  // the stage that is at a transfer
  for (bool any = true; std::exchange(any, false);)
    for (size_t s = 0; s < acts.size(); ++s)
      for (; next[s] < acts[s].size(); ++next[s], any = true) {
        const auto& [pass, given] = acts[s][next[s]];
        if (pass) {
          const int before = std::get<1>(given);
          const bool has_input = before >= 0 && before < stages;
          if (has_input && !arrives.contains(given)) break;
          if (has_input) now[s] = std::max(now[s], arrives[given]);
          now[s] += seconds.at({pass->vrank, pass->run, pass->backward});
          if (!together) arrives[{pass->vrank, pass->run, pass->backward}] = now[s] + travels;
        } else {
          const auto other = waits.find(given);
          if (other == waits.end()) waits[given] = s;
          if (other == waits.end() || other->second == s) break;
          now[s] = now[other->second] = arrives[given] = std::max(now[s], now[other->second]) + travels;
          ++next[other->second];
        }
      }
  for (size_t s = 0; s < acts.size(); ++s) EXPECT_EQ(next[s], acts[s].size()) << "stage " << s;
  return *std::ranges::max_element(now);
}

// elastic/ARRANGEMENT.md has these figures.
TEST(Pipeline, TransfersThatTakeBothStagesCostLittle) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int stages = 2; stages <= 8; ++stages)
    for (int count : {4, 8, 32}) {
      double at_once = 0, together = 0, by_hosts = 0;
      for (int trial = 0; trial < 10; ++trial) {
        std::map<std::tuple<int, int, bool>, double> seconds;
        for (int stage = 0; stage < stages; ++stage) {
          const double stage_takes = 1 + 0.15 * uniform(random);
          for (int vrank = 0; vrank < count; ++vrank)
            for (const bool backward : {false, true})
              seconds[{vrank, stage, backward}] = (backward ? 2 : 1) * stage_takes * (1 + 0.1 * uniform(random));
        }
        at_once += seconds_with_transfers(stages, count, seconds, 0, /*together=*/false);
        together += seconds_with_transfers(stages, count, seconds, 0.002, /*together=*/true);
        by_hosts += seconds_with_transfers(stages, count, seconds, 0.1, /*together=*/false);
      }
      EXPECT_LT(together, 1.003 * at_once) << stages << " stages, " << count << " virtual ranks";
      EXPECT_GT(by_hosts, 1.005 * at_once) << stages << " stages, " << count << " virtual ranks";
      EXPECT_LT(by_hosts, 1.07 * at_once) << stages << " stages, " << count << " virtual ranks";
    }
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
        for (size_t r = 0; r < runs.size(); ++r) {
          const size_t ahead = tied && r + 1 < runs.size() ? 1 : 0;
          EXPECT_LE(most[r], std::min(vranks, static_cast<int>(runs.size() - r + ahead))) << "memory of run " << r;
        }
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

// Seconds of GPT-2's passes through nine blocks, on the slower stage, and through the embeddings, three blocks and the
// head. The slower stage would wait for a second more if it could begin only two rank gradients.
TEST(Pipeline, TheSlowerStageHasWorkWhileTheOtherOneComputesTheHead) {
  const std::vector<PipelineRun> runs = runs_of(Stages{{{1, 10}}, {{0, 1}, {10, 14}}});
  const std::vector<PassSeconds> seconds = {{.forward = 0.005, .backward = 0.27, .sent = 0.01},
                                            {.forward = 0.755, .backward = 1.415, .sent = 0.01},
                                            {.forward = 0.69, .backward = 1.05, .sent = 0.01}};
  const double busy = 8 * (0.755 + 1.415);
  EXPECT_LT(pipeline_seconds(runs, seconds, 2, 8), busy + 0.7);
}

TEST(Pipeline, WithoutVirtualRanksThereIsNothingToCompute) {
  const Order order = pipeline_order(runs_of(equal_stages(3)), 3, {});
  EXPECT_EQ(order, Order(3));
}

}  // namespace
}  // namespace elinvar
