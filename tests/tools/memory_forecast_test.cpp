#include "tools/training/memory_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "elastic/step/sharding.h"

namespace elinvar {
namespace {

constexpr int64_t kP = int64_t{64} << 20;  // bytes of parameters

// One parameter that is cut into 64 buckets of a chunk each.
MemoryNeeds needs() { return {.parameters = {{kP / 4}}, .slots = 2, .other_state = 1000, .process = 500}; }

// Workers with so many virtual ranks each.
std::vector<WorkerLoad> loads(const std::vector<int>& virtual_ranks) {
  std::vector<WorkerLoad> workers;
  for (const int ranks : virtual_ranks)
    workers.push_back(
        {.virtual_ranks = ranks, .place = {.replica = static_cast<int>(workers.size())}, .passes = {3 * kP}});
  return workers;
}

TEST(MemoryForecast, AWorkerAloneHoldsAll) {
  const MemoryForecast alone = forecast_memory(needs(), {}, loads({4})).at(0);
  EXPECT_EQ(alone.parameters, kP);
  EXPECT_EQ(alone.optimizer, 2 * kP);
  EXPECT_EQ(alone.snapshot, 3 * kP + 1000);
  // State, its copy, sums of two and of one rank gradient, and the last one.
  EXPECT_EQ(alone.peak, 3 * kP + 1000 + alone.snapshot + 500 + 2 * kP + 3 * kP);
}

TEST(MemoryForecast, TheLastCheckpointNeedsNoMemoryBesideAStep) {
  MemoryNeeds last = needs();
  last.checkpoints = false;
  const MemoryForecast alone = forecast_memory(last, {}, loads({4})).at(0);
  EXPECT_EQ(alone.peak, 3 * kP + 1000 + 500 + 2 * kP + 3 * kP);
}

TEST(MemoryForecast, ZeroDividesTheOptimizersState) {
  for (const int copies : {1, 2}) {
    const auto workers = forecast_memory(needs(), {.zero = 1, .copies = copies}, loads({1, 1, 1, 1}));
    for (const MemoryForecast& w : workers) {
      EXPECT_EQ(w.parameters, kP);
      EXPECT_EQ(w.optimizer, 2 * kP * copies / 4);
    }
    EXPECT_LT(workers[0].peak, forecast_memory(needs(), {}, loads({1, 1, 1, 1}))[0].peak);
  }
}

TEST(MemoryForecast, ZeroDividesTheAverage) {
  MemoryNeeds averaged = needs();
  averaged.average = true;
  const auto more = [&](const Arrangement& arrangement) {
    return forecast_memory(averaged, arrangement, loads({1, 1, 1, 1}))[0].peak -
           forecast_memory(needs(), arrangement, loads({1, 1, 1, 1}))[0].peak;
  };
  EXPECT_EQ(more({}), kP + kP / 4) << "and a part of a checkpoint";
  for (const int zero : {1, 2, 3})
    for (const int copies : {1, 2}) EXPECT_EQ(more({.zero = zero, .copies = copies}), kP * copies / 4 + kP / 4);
}

TEST(MemoryForecast, OwnersHaveFewSumsOfGradientsThatLeave) {
  const auto peak = [](const std::vector<int>& ranks) {
    return forecast_memory(needs(), {.zero = 2, .copies = 1}, loads(ranks))[0].peak;
  };
  const int64_t one_each = peak({1, 1});
  EXPECT_EQ(peak({2, 2}) - one_each, kP / 2) << "the sum of the first two, while the others come";
  EXPECT_EQ(peak({4, 4}) - one_each, 2 * kP / 2) << "of the first four, and of two";
}

TEST(MemoryForecast, StateInAFileIsNoMemory) {
  MemoryNeeds in_file = needs();
  in_file.offload.to = Offload::To::file;
  const MemoryForecast in_memory = forecast_memory(needs(), {}, loads({4})).at(0),
                       alone = forecast_memory(in_file, {}, loads({4})).at(0);
  EXPECT_EQ(alone.optimizer, 2 * kP);
  EXPECT_EQ(alone.offloaded, 2 * kP);
  EXPECT_EQ(in_memory.offloaded, 0);
  EXPECT_EQ(in_memory.peak - alone.peak, 2 * kP);
}

TEST(MemoryForecast, AWorkerAloneHasItsGradientsOnItsGpu) {
  MemoryNeeds on_gpu = needs();
  on_gpu.gpu = GpuNeeds{.context = 700, .batches = 30};
  const MemoryForecast alone = forecast_memory(on_gpu, {}, loads({4})).at(0);
  EXPECT_EQ(alone.peak, 700 + 3 * kP + 1000 + 30 + 2 * kP + 3 * kP) << "sums of two and of one rank gradient";
  EXPECT_EQ(alone.host, 500 + alone.snapshot + kP) << "the program, a checkpoint, and a rank gradient as it begins";
}

TEST(MemoryForecast, GpusOfAGroupHaveSumsUpToZeroOne) {
  const auto forecast = [](bool group, const Arrangement& arrangement) {
    MemoryNeeds on_gpu = needs();
    on_gpu.gpu = GpuNeeds{.group = group};
    return forecast_memory(on_gpu, arrangement, loads({1, 1})).at(0);
  };
  const MemoryForecast hosts = forecast(false, {}), group = forecast(true, {});
  EXPECT_EQ(hosts.peak, 3 * kP + 1000 + 3 * kP) << "the state and a rank gradient";
  EXPECT_EQ(group.peak, 3 * kP + 1000 + kP + kP + kP + 3 * kP / 2)
      << "the state, the sums of the step before, a rank gradient's, new sums, and a bucket of all with half of "
         "others'";
  EXPECT_EQ(hosts.host, 500 + hosts.snapshot + kP + kP + 3 * kP / 2);
  EXPECT_EQ(group.host, hosts.host) << "in the first step of the group";
  const MemoryForecast first = forecast(true, {.zero = 1, .copies = 1}),
                       second = forecast(true, {.zero = 2, .copies = 1});
  EXPECT_EQ(first.peak, kP + kP + 1000 + 3 * kP);
  EXPECT_EQ(second.peak, forecast(false, {.zero = 2, .copies = 1}).peak);
}

// In a pipeline the first stage has fewer rank gradients between their passes when it has sums of earlier ones.
TEST(MemoryForecast, SumsOfEarlierRankGradientsGrowAsPassesEnd) {
  std::vector<WorkerLoad> one = loads({4});
  one[0].passes = {9 * kP, 9 * kP, 7 * kP, 3 * kP};
  EXPECT_EQ(forecast_memory(needs(), {}, one).at(0).peak, 3 * kP + 1000 + 500 + 3 * kP + 1000 + kP + 9 * kP)
      << "one sum beside the second rank gradient; two beside the last one are less";
  std::vector<WorkerLoad> three = loads({3});
  const int64_t from_0 = forecast_memory(needs(), {}, three).at(0).peak;
  three[0].first = 3;
  EXPECT_EQ(forecast_memory(needs(), {}, three).at(0).peak - from_0, kP)
      << "3 and 4 have different parents, 0 and 1 one";
}

// Results of the stage with the head come while the other one has three rank gradients between their passes.
TEST(MemoryForecast, AStageBesideOneWithTwoRunsGetsResultsEarlier) {
  MemoryNeeds three = needs();
  three.parameters = {{kP / 12}, {kP / 12}, {kP / 12}};
  three.parts = TensorParts{.gradients = {{0, -1}, {1, -1}, {2, -1}}};
  std::vector<WorkerLoad> pair = loads({4, 4});
  pair[0].passes = {kP, 9 * kP, kP, kP};
  pair[1].passes = {0};
  const auto first_stage = [&](std::vector<Interval> of_last) {
    pair[0].place = {.stage = 0, .segments = {{1, 2}}};
    pair[1].place = {.stage = 1, .segments = std::move(of_last)};
    return forecast_memory(three, {.pp = 2}, pair)[0].peak;
  };
  EXPECT_EQ(first_stage({{0, 1}, {2, 3}}) - first_stage({{2, 3}}), 2 * (kP / 12 * 4))
      << "the results of two segments beside the second rank gradient's passes";
}

// Segments of a network share no bucket where model replicas have several members.
TEST(MemoryForecast, AGroupOfStagesHasABucketOfOneSegmentInTransit) {
  MemoryNeeds on_gpu = needs();
  constexpr int64_t kPart = 4096;
  on_gpu.parameters = {{kPart / 4}, {kPart / 4}};
  on_gpu.parts = TensorParts{.gradients = {{0, -1}, {1, -1}}};
  on_gpu.gpu = GpuNeeds{.group = true};
  std::vector<WorkerLoad> pair = loads({1, 1});
  for (WorkerLoad& load : pair) load.passes = {0};
  const int64_t apart = forecast_memory(on_gpu, {}, pair).at(0).peak;
  pair[0].place = {.stage = 0, .segments = {{0, 1}}};
  pair[1].place = {.stage = 1, .segments = {{1, 2}}};
  const int64_t stages = forecast_memory(on_gpu, {.pp = 2}, pair).at(0).peak;
  EXPECT_EQ(apart - stages, kPart + (3 * kPart - kPart))
      << "the other part of the sums, and a bucket of both parts with half of others'";
}

TEST(MemoryForecast, AnUpdateHasThreePartsOfOffloadedStateOnTheGpu) {
  MemoryNeeds on_gpu = needs(), offloaded = needs();
  on_gpu.gpu = offloaded.gpu = GpuNeeds{};
  offloaded.offload = {.to = Offload::To::host, .part = kP / 64};
  const auto peak = [](const MemoryNeeds& needs, int64_t rank_gradient) {
    std::vector<WorkerLoad> one = loads({1});
    one[0].passes = {rank_gradient};
    return forecast_memory(needs, {}, one).at(0);
  };
  EXPECT_EQ(peak(on_gpu, 3 * kP).peak - peak(offloaded, 3 * kP).peak, 2 * kP);
  EXPECT_EQ(peak(offloaded, kP).peak, kP + 1000 + kP + 3 * 2 * kP / 16);
  EXPECT_EQ(peak(offloaded, kP).host - peak(on_gpu, kP).host, 2 * kP);
  EXPECT_EQ(peak(offloaded, kP).offloaded, 2 * kP);
}

TEST(MemoryForecast, AWorkerWithoutVirtualRanksComputesNothing) {
  const auto workers = forecast_memory(needs(), {.zero = 1, .copies = 1}, loads({2, 0}));
  EXPECT_EQ(workers[0].peak - workers[1].peak, kP + 3 * kP);
}

// A table of one bucket, whose state has a number for each row. All workers get the gradient of its touched rows.
TEST(MemoryForecast, OneWorkerKeepsATableThatIsNotCut) {
  constexpr int64_t kRows = int64_t{1} << 17, kChannels = 64, kTable = kRows * kChannels * 4, kTouched = 1 << 20;
  MemoryNeeds sparse = needs();
  sparse.gradients = {sparse.parameters[0], {kTouched / kChannels / 4, kChannels}};
  sparse.parameters.push_back({kRows, kChannels});
  sparse.tables[1] = {.cut = (int64_t{1} << 18) * kChannels, .state = kRows * 4, .rows = kTouched};
  for (const int zero : {1, 2, 3}) {
    const auto workers = forecast_memory(sparse, {.zero = zero, .copies = 1}, loads({1, 1}));
    const auto without = forecast_memory(needs(), {.zero = zero, .copies = 1}, loads({1, 1}));
    const bool first = workers[0].peak > workers[1].peak;
    const MemoryForecast &keeper = workers[first ? 0 : 1], &other = workers[first ? 1 : 0];
    if (zero == 3) {
      EXPECT_GT(keeper.parameters - other.parameters, kTable / 2) << "others keep more buckets without it";
    }
    EXPECT_EQ(keeper.optimizer + other.optimizer, without[0].optimizer + without[1].optimizer + kRows * 4);
    EXPECT_EQ(keeper.parameters + other.parameters,
              without[0].parameters + without[1].parameters + (zero < 3 ? 2 : 1) * kTable);
    EXPECT_GT(other.peak, without[1].peak + 4 * kTouched) << "rows, their copies for an update, and their sum";
  }
}

// The only stage that looks rows up has all rank gradients of the table, and sends the sum.
TEST(MemoryForecast, AStageAddsUpItsTablesAlone) {
  constexpr int64_t kRows = 1 << 16, kChannels = 64, kTouched = 1 << 20;
  std::vector<WorkerLoad> pair = loads({8, 8});
  for (int w : {0, 1}) {
    WorkerLoad& load = pair[static_cast<size_t>(w)];
    load.place = {.stage = w, .segments = {{w, w + 1}}};
  }
  const auto peaks = [&](int64_t touched) {
    MemoryNeeds sparse = needs();
    sparse.gradients = {sparse.parameters[0], {touched / kChannels / 4, kChannels}};
    sparse.parameters.push_back({kRows, kChannels});
    sparse.parts = TensorParts{.gradients = {{1, -1}, {0, -1}}};
    sparse.tables[1] = {.cut = (int64_t{1} << 18) * kChannels, .state = kRows * 4, .rows = 0};
    const auto workers = forecast_memory(sparse, {.zero = 3, .copies = 1, .pp = 2}, pair);
    return std::pair(workers[0].peak, workers[1].peak);
  };
  const auto once = peaks(kTouched), twice = peaks(2 * kTouched);
  EXPECT_EQ(twice.first - once.first, (3 + 1 + 2) * kTouched)
      << "the sums of four, two and one rank gradients, their messages, and an update's copies";
  EXPECT_EQ(twice.second - once.second, (1 + 1 + 2) * kTouched) << "the sum of all, its message, and the copies";
}

// The part of a checkpoint that has the table has nothing else, since it is more than half of the state.
TEST(MemoryForecast, PartsOfACheckpointHaveWholeTensors) {
  MemoryNeeds named = needs();
  named.slots = 0;
  named.parameters = {{kP / 4}, {kP / 16}, {kP / 16}};
  named.names = {"a", "b", "c"};
  const auto workers = forecast_memory(named, {}, loads({1, 1}));
  EXPECT_EQ(workers[0].snapshot, kP + 500);
  EXPECT_EQ(workers[1].snapshot, kP / 2 + 500);
}

// Half of the parameters are cut into two virtual shards. A member of a pair keeps the sums of its own shard and of
// half of what is not cut.
TEST(MemoryForecast, MembersOfAModelReplicaKeepTheGradientsThatTheyContribute) {
  MemoryNeeds cut = needs();
  cut.parameters = {{kP / 8}, {kP / 16}, {kP / 16}};
  cut.parts = TensorParts{.gradients = {{0, -1}, {0, 0}, {0, 1}}};
  std::vector<WorkerLoad> pair = loads({4, 4});
  const int64_t apart = forecast_memory(cut, {}, pair)[1].peak;
  pair[0].place = {.replica = 0, .shards = {0, 1}};
  pair[1].place = {.replica = 0, .shards = {1, 2}};
  EXPECT_EQ(apart - forecast_memory(cut, {.tp = 2}, pair)[1].peak, 2 * kP / 2 + kP / 2)
      << "two levels of the tree, and no other replica's sums for the buckets that it owns";
}

// Buckets have owners at random, so a stage may get more results of the other one than half.
TEST(MemoryForecast, ResultsOfAnotherStageComeBeforeAStageEnds) {
  MemoryNeeds two = needs();
  two.parameters = {{kP / 8}, {kP / 8}};
  two.parts = TensorParts{.gradients = {{0, -1}, {1, -1}}};
  std::vector<WorkerLoad> pair = loads({4, 4});
  for (const int w : {0, 1}) pair[static_cast<size_t>(w)].place = {.stage = w, .segments = {{w, w + 1}}};
  const auto workers = forecast_memory(two, {.zero = 1, .copies = 1, .pp = 2}, pair);
  const auto keepers = keepers_of({.ids = {1, 2}, .copies = 1}, 64);
  for (const int w : {0, 1}) {
    const auto mine = [&](const std::vector<int>& ids) { return ids[0] == w + 1; };
    const auto from_other = std::ranges::count_if(std::span(keepers).subspan(w == 0 ? 32 : 0, 32), mine);
    const MemoryForecast& worker = workers[static_cast<size_t>(w)];
    EXPECT_EQ(worker.peak, worker.parameters + worker.optimizer + 1000 + worker.snapshot + 500 + 2 * kP / 2 + 3 * kP +
                               from_other * kP / 64)
        << "beside the sums of two and of one rank gradient of its part";
  }
}

}  // namespace
}  // namespace elinvar
