// Replayed rank gradients have the bits of gradients that are computed directly, whatever changes between them, and
// take one launch each.
#include "nn/micro_batch_graphs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/precision.h"
#include "models/build.h"
#include "nn/optimizer.h"
#include "nn/running_statistics.h"
#include "tensor/allocator.h"
#include "tensor/device_cache.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/pointwise.h"
#include "tensor/state.h"
#include "tensor/trace.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#ifdef ELINVAR_EMULATION
#include "tests/emulation/graph.h"
#endif

namespace elinvar::test {
namespace {

using List = std::vector<int64_t>;

struct GraphCase {
  std::string name;
  std::string kind;
  std::map<std::string, Value> settings;
  bool mixed = false, recompute = false;
  CrossEntropyOptions loss = {};
  Precision precision = Precision::portable;

  bool text() const { return kind == "gpt" || kind == "llama"; }
  bool boxes() const { return kind == "yolov3_tiny"; }
  bool slow() const {  // to emulate: threads often switch in attention in bf16; launches are many
    return precision == Precision::bf16 || kind == "swin_t" || kind == "efficientnet_b0" || boxes();
  }
  int64_t steps() const { return slow() ? 4 : 7; }
};

void PrintTo(const GraphCase& c, std::ostream* out) { *out << c.name; }

std::vector<GraphCase> cases() {
  const std::map<std::string, Value> small{{"layers", int64_t{2}}, {"heads", int64_t{2}}, {"channels", int64_t{32}}};
  std::map<std::string, Value> gpt = small, llama = small;
  gpt["dropout"] = 0.1;
  std::map<std::string, Value> gpt_of_one = gpt;
  gpt_of_one["layers"] = int64_t{1};
  llama["kv_heads"] = int64_t{1};
  llama["hidden"] = int64_t{48};
  std::map<std::string, Value> in_shards = gpt;
  in_shards["virtual_shards"] = int64_t{2};
  std::map<std::string, Value> experts = gpt_of_one;
  experts["experts"] = int64_t{4};
  const std::map<std::string, Value> resnet{{"blocks", List{1, 1}}, {"widths", List{8, 16}}};
  return {{.name = "ResNet", .kind = "resnet", .settings = resnet},
          {.name = "ResNetMixed",
           .kind = "resnet",
           .settings = resnet,
           .mixed = true,
           .recompute = true,
           .loss = {.label_smoothing = 0.1}},
          {.name = "Gpt", .kind = "gpt", .settings = gpt},
          {.name = "GptRecomputed", .kind = "gpt", .settings = gpt, .recompute = true, .loss = {.ignore_index = 3}},
          {.name = "Llama", .kind = "llama", .settings = llama},
          {.name = "GptInShards", .kind = "gpt", .settings = in_shards, .loss = {.label_smoothing = 0.1}},
          {.name = "GptOfExperts", .kind = "gpt", .settings = experts, .recompute = true},
          {.name = "GptBf16", .kind = "gpt", .settings = gpt_of_one, .precision = Precision::bf16},
          {.name = "ResNetTf32", .kind = "resnet", .settings = resnet, .precision = Precision::tf32},
          {.name = "Swin",
           .kind = "swin_t",
           .settings = {{"patch", int64_t{2}},
                        {"channels", int64_t{8}},
                        {"window", int64_t{2}},
                        {"blocks", List{2}},
                        {"heads", List{2}}}},
          {.name = "EfficientNet", .kind = "efficientnet_b0", .settings = {{"width", 0.1}, {"depth", 0.1}}},
          {.name = "Yolo", .kind = "yolov3_tiny", .settings = {{"channels", int64_t{1}}}}};
}

constexpr int64_t kClasses = 10, kContext = 12, kSide = 8, kSideOfBoxes = 32;

MadeTask task_of(const GraphCase& c) {
  if (!c.boxes()) return {c.loss, kClasses};
  Spec spec{.kind = "detection"};
  spec.settings["anchors"] = {std::vector<double>{4, 4, 8, 4, 4, 8, 16, 16, 24, 12, 12, 24}};
  return make_task(spec, {}, {.sample = {2, 5}, .dtype = DType::f32, .classes = 3});
}

struct Inputs {
  Tensor input;
  Targets targets;
};

// Every batch differs, and every third step is short.
Inputs batch_of(const GraphCase& c, int64_t step, int vrank, Device device) {
  const int64_t n = step % 3 == 2 ? 2 : 3;
  const std::string name = fmt::format("{} {} {}", c.name, step, vrank);
  const auto labels = [&](const Shape& shape, const std::string& of) {
    return make_inputs({{shape, Input::Kind::index, kClasses}}, of + name)[0];
  };
  if (c.text()) return {labels({n, kContext}, "tokens").to(DType::i32), labels({n, kContext}, "next")};
  if (c.boxes()) {
    Tensor boxes = labels({n, 2, 5}, "boxes").to(DType::f32);
    for (int64_t i = 0; i < boxes.numel(); ++i) {
      float& number = boxes.data<float>()[i];
      number = i % 5 == 0 ? std::fmod(number, 3.0f) - static_cast<float>(i % 2) : (number + 1) / 12;
    }
    return {normal({n, kSideOfBoxes, kSideOfBoxes, 3}, name).to(device), boxes};
  }
  const Tensor images = normal({n, kSide, kSide, 3}, name).to(device), own = labels({n}, "own");
  if (!c.mixed) return {images, own};
  std::vector<float> shares;
  for (int64_t i = 0; i < n; ++i) shares.push_back(0.25f * static_cast<float>(i + step % 2));
  return {images, Targets(own, labels({n}, "other"), Tensor::from(shares, {n}))};
}

enum class Leaving { stays, one_by_one };

// Runs a few steps of two virtual ranks, with any function that computes rank gradients.
class Trial {
 public:
  Trial(const GraphCase& c, Device device)
      : case_(c),
        device_(device),
        task_(task_of(c)),
        network_(build(spec(),
                       {.sample = c.text()    ? Shape{kContext}
                                  : c.boxes() ? Shape{kSideOfBoxes, kSideOfBoxes, 3}
                                              : Shape{kSide, kSide, 3},
                        .classes = task_.outputs,
                        .dtype = c.text() ? DType::i32 : DType::f32},
                       1)) {
    network_->parameters.move_to(device);
    optimizer_ = make_optimizer({.kind = "adamw", .lr = 3e-3, .weight_decay = 0.1}, network_->parameters);
  }

  template <class RankGradient>
  void step(RankGradient&& compute, Leaving leaving) {
    std::vector<Tensor> gradients, batch_statistics;
    std::vector<Statistic> statistics;
    for (int vrank = 0; vrank < 2; ++vrank) {
      const Inputs batch = batch_of(case_, step_, vrank, device_);
      const Rng rng{.seed = 9, .step = static_cast<uint32_t>(step_), .vrank = static_cast<uint32_t>(vrank)};
      std::vector<std::pair<size_t, Download>> sent;
      std::vector<Download> sent_statistics;
      MicroBatchProgress progress;
      if (leaving == Leaving::one_by_one) {
        progress.forward = [&](const MicroBatchResult& r) {
          for (const Tensor& statistic : r.batch_statistics)
            sent_statistics.emplace_back(statistic, r.statistics_since);
        };
        progress.gradient = [&](size_t i, Tensor g, const Mark& since) { sent.emplace_back(i, Download(g, since)); };
      }
      MicroBatchResult result = [&] {
        const PrecisionScope products(case_.precision);
        return compute(*network_, batch.input, batch.targets, task_.task, rng, case_.recompute, progress);
      }();
      if (leaving == Leaving::one_by_one) {
        result.gradients.resize(sent.size());
        for (auto& [i, download] : sent) result.gradients[i] = download.wait();
        for (size_t i = 0; i < result.batch_statistics.size(); ++i)
          result.batch_statistics[i] = sent_statistics[i].wait();
      }
      seen_.push_back(fmt::format("{} of {} right, loss {:a}", result.correct, result.count, result.loss_sum));
      StateDict all;
      for (size_t i = 0; i < result.gradients.size(); ++i) all.emplace(fmt::format("g{}", i), result.gradients[i]);
      for (size_t i = 0; i < result.batch_statistics.size(); ++i)
        all.emplace(fmt::format("t{}", i), result.batch_statistics[i]);
      seen_.push_back(digest(all).hex());
      // The first rank gradient's tensors must outlive the second's.
      if (vrank == 0) gradients = std::move(result.gradients), batch_statistics = std::move(result.batch_statistics);
      else
        for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = add(gradients[i], result.gradients[i]);
      statistics = std::move(result.statistics);
    }
    for (Tensor& g : gradients) g = g.to(device_);
    optimizer_->step(network_->parameters, gradients, 3e-3, step_, 0.5);
    update_running_statistics(statistics, batch_statistics, 1);
    ++step_;
  }
  void finish() { seen_.push_back(digest(network_->parameters.state()).hex()); }

  Network& network() { return *network_; }
  const std::vector<std::string>& seen() const { return seen_; }

 private:
  Spec spec() const {
    Spec s{.kind = case_.kind};
    for (const auto& [name, value] : case_.settings) s.settings[name] = {value};
    return s;
  }

  const GraphCase& case_;
  Device device_;
  MadeTask task_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Optimizer> optimizer_;
  int64_t step_ = 0;
  std::vector<std::string> seen_;
};

class MicroBatchGraph : public ::testing::TestWithParam<std::tuple<Device, GraphCase>> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
    if (case_.precision != Precision::portable && !fast_products(device_).missing.empty())
      GTEST_SKIP() << fast_products(device_).missing;
  }
  const Device device_ = std::get<0>(GetParam());
  const GraphCase case_ = std::get<1>(GetParam());
};
INSTANTIATE_TEST_SUITE_P(, MicroBatchGraph,
                         ::testing::Combine(::testing::ValuesIn(devices_of_the_build()), ::testing::ValuesIn(cases())),
                         [](const auto& param) {
                           return name_of(std::get<0>(param.param).kind) + ("_" + std::get<1>(param.param).name);
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MicroBatchGraph);

constexpr auto kPlain = [](auto&&... arguments) {
  return micro_batch_gradient(std::forward<decltype(arguments)>(arguments)...);
};

TEST_P(MicroBatchGraph, HasTheBitsOfOneThatIsComputedAsItIsCalled) {
  for (const Leaving leaving : {Leaving::stays, Leaving::one_by_one}) {
    Trial plain(case_, device_), replayed(case_, device_);
    std::vector<std::string> notices;
    MicroBatchGraphs graphs([&](const std::string& notice) { notices.push_back(notice); });
    for (int64_t step = 0; step < case_.steps(); ++step) {
      plain.step(kPlain, leaving);
      replayed.step([&](auto&&... arguments) { return graphs.micro_batch_gradient(arguments...); }, leaving);
    }
    plain.finish();
    replayed.finish();
    EXPECT_EQ(replayed.seen(), plain.seen());
    EXPECT_TRUE(notices.empty()) << notices[0];
  }
}

// Parameters are written in place, and replaced by other tensors.
TEST_P(MicroBatchGraph, ParametersMayChangeBetweenMicroBatches) {
  Trial plain(case_, device_), replayed(case_, device_);
  MicroBatchGraphs graphs;
  const auto begin_with = [](Trial& run) {
    StateDict copies;
    for (const auto& [name, tensor] : run.network().parameters.state()) copies.emplace(name, tensor.clone());
    return copies;
  };
  const StateDict first = begin_with(plain);
  for (int64_t step = 0; step < case_.steps(); ++step) {
    for (Trial* run : {&plain, &replayed}) {
      if (step == 3) run->network().parameters.load(first);
      if (step == 5)
        for (Parameter& p : run->network().parameters.list) p.var.mutable_value() = p.var.value().clone();
    }
    plain.step(kPlain, Leaving::one_by_one);
    replayed.step([&](auto&&... arguments) { return graphs.micro_batch_gradient(arguments...); }, Leaving::one_by_one);
  }
  EXPECT_EQ(replayed.seen(), plain.seen());
}

#ifdef ELINVAR_EMULATION

const Device kEmulated{DeviceKind::emulated};

// The other launches copy the images to the graph's input and copy the results that are kept.
TEST(EmulatedMicroBatchGraphs, ASteadyMicroBatchIsOneLaunchAndTakesNoMoreMemory) {
  for (size_t i = 0; i < 2 * cases().size(); ++i) {
    const GraphCase c = cases()[i / 2];
    const Leaving leaving = i % 2 == 0 ? Leaving::stays : Leaving::one_by_one;
    if (c.precision == Precision::bf16) continue;
    if (c.kind == "efficientnet_b0") continue;  // has more results than one launch copies
    Trial run(c, kEmulated);
    MicroBatchGraphs graphs;
    int64_t launched = 0;
    const auto micro_batch = [&](auto&&... arguments) {
      const int64_t before = emulation::launches();
      MicroBatchResult result = graphs.micro_batch_gradient(arguments...);
      launched = emulation::launches() - before;
      return result;
    };
    DeviceCache& memory = recording_stream<Emulated>(0).cache();
    AllocatorStats steady;
    for (int64_t step = 0; step < 9; ++step) {
      run.step(micro_batch, leaving);
      if (step == 5) steady = memory.stats();
      if (step > 5) {
        EXPECT_EQ(launched, (c.text() ? 1 : 2) + (leaving == Leaving::stays ? 1 : 0)) << c.name;
      }
    }
    EXPECT_GT(memory.stats().in_use, 0);
    EXPECT_EQ(memory.stats().in_use, steady.in_use) << c.name;
    EXPECT_EQ(memory.stats().allocations, steady.allocations) << c.name;
  }
  EXPECT_EQ(recording_stream<Emulated>(0).cache().stats().cached, 0) << "given back with the last graph";
}

class Counting final : public Recorder {
 public:
  void begins(const AnyOp&, const TraceValues&) override { ++calls; }
  void ends(const TraceValues&, const OpWork&) override {}
  int64_t calls = 0;
};

TEST(EmulatedMicroBatchGraphs, WhoeverRecordsOpsSeesThem) {
  const GraphCase c = cases()[2];
  Trial run(c, kEmulated);
  MicroBatchGraphs graphs;
  Counting counting;
  const auto micro_batch = [&](auto&&... arguments) { return graphs.micro_batch_gradient(arguments...); };
  for (int64_t step = 0; step < 2; ++step) run.step(micro_batch, Leaving::stays);
  const auto recorded = [&](auto&&... arguments) {
    const RecordScope scope(counting);
    return graphs.micro_batch_gradient(arguments...);
  };
  run.step(recorded, Leaving::stays);
  EXPECT_GT(counting.calls, 50);
}

TEST(EmulatedMicroBatchGraphs, WithoutMemoryForAGraphThereIsNone) {
  const GraphCase c = cases()[0];
  Trial plain(c, kEmulated), replayed(c, kEmulated);
  std::vector<std::string> notices;
  MicroBatchGraphs graphs([&](const std::string& notice) { notices.push_back(notice); });
  const auto micro_batch = [&](auto&&... arguments) { return graphs.micro_batch_gradient(arguments...); };
  for (int64_t step = 0; step < 4; ++step) {
    plain.step(kPlain, Leaving::one_by_one);
    const emulation::NoMoreMemory none;
    replayed.step(micro_batch, Leaving::one_by_one);
  }
  EXPECT_EQ(replayed.seen(), plain.seen());
  ASSERT_FALSE(notices.empty());
  EXPECT_NE(notices[0].find("leaves are computed without a graph: [emulated] out of memory: asked for"),
            std::string::npos)
      << notices[0];
  graphs.clear();  // with memory a graph is made
  for (int64_t step = 4; step < 8; ++step) {
    plain.step(kPlain, Leaving::one_by_one);
    replayed.step(micro_batch, Leaving::one_by_one);
  }
  EXPECT_EQ(replayed.seen(), plain.seen());
  EXPECT_GT(recording_stream<Emulated>(0).cache().stats().in_use, 0);
}

// The loss reads back tokens that are on the device, so there is no graph.
TEST(EmulatedMicroBatchGraphs, WhatCannotBeRecordedIsComputedAsItIsCalledAndSaidOnce) {
  const GraphCase c = cases()[2];
  Trial plain(c, kEmulated), replayed(c, kEmulated);
  std::vector<std::string> notices;
  MicroBatchGraphs graphs([&](const std::string& notice) { notices.push_back(notice); });
  const auto micro_batch = [&](Network& network, const Tensor& input, auto&&... rest) {
    return graphs.micro_batch_gradient(network, input.to(kEmulated), rest...);
  };
  for (int64_t step = 0; step < 4; ++step) {
    plain.step(kPlain, Leaving::stays);
    replayed.step(micro_batch, Leaving::stays);
  }
  EXPECT_EQ(replayed.seen(), plain.seen());
  EXPECT_EQ(
      notices,
      (std::vector<std::string>{"leaves are computed without a graph: [graph] a copy to the host cannot be recorded"}));
  EXPECT_EQ(recording_stream<Emulated>(0).cache().stats().in_use, 0);
}

#endif

}  // namespace
}  // namespace elinvar::test
