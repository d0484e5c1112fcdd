// Divides updates among simulated processes and compares the bits with those of the whole update.
#include "nn/sliced_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "nn/clip.h"
#include "nn/weight_average.h"
#include "tensor/base/check.h"
#include "tensor/numerics.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/global_norm.h"
#include "tensor/philox.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

constexpr int kStepsOfRun = 6;
constexpr double kLargestNorm = 1.0, kAverageDecay = 0.7;

Tensor numbers(const Shape& shape, uint64_t key) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(uniform01(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0])) - 0.5f;
  return x;
}

// Tensors of several segments, of a part of one and of none, shards of different sizes, exemptions from decay, and a
// buffer.
Parameters odd_parameters(Device device) {
  Parameters all;
  const auto add = [&](const char* name, const Shape& shape, bool decay, const Cut& cut = {}, int shard = 0) {
    all.list.push_back({name, Var(numbers(shape, all.list.size()).to(device), true), decay, cut, shard});
  };
  const Cut cut{.shards = 3, .things = 110};
  add("matrix", {157, 197}, true);
  add("cut@0", {36, 250}, true, cut, 0);
  add("cut@1", {37, 250}, true, cut, 1);
  add("cut@2", {37, 250}, true, cut, 2);
  add("bias", {5000}, false);
  add("nothing", {0, 3}, true);
  add("aligned", {2, 4096}, true);
  add("gain", {7}, false);
  all.buffers.push_back(std::make_shared<Buffer>(Buffer{"mean", numbers({33}, 99).to(device)}));
  return all;
}

std::vector<Tensor> odd_gradients(const Parameters& parameters, int step) {
  std::vector<Tensor> gradients;
  for (const Parameter& p : parameters.list)
    gradients.push_back(
        numbers(p.var.shape(), 100 + 20 * static_cast<uint64_t>(step) + gradients.size()).to(p.var.value().device()));
  return gradients;
}

// Cuts all parameters at random segments and assigns each slice to one or two processes.
std::vector<std::vector<Slice>> assigned(size_t processes, std::mt19937& random) {
  std::vector<std::vector<Slice>> all(processes);
  const std::vector<Shape> shapes = shapes_of(odd_parameters({}));
  for (size_t t = 0; t < shapes.size(); ++t)
    for (int64_t begin = 0; begin < shapes[t].numel();) {
      const int64_t end = std::min(shapes[t].numel(), begin + kRowSegment * static_cast<int64_t>(1 + random() % 4));
      const size_t keeper = random() % processes, replica = random() % processes;
      for (size_t p = 0; p < processes; ++p)
        if (p == keeper || p == replica) all[p].push_back({static_cast<int>(t), begin, end});
      begin = end;
    }
  return all;
}

// What a run ends with, on the CPU: parameters, state of the optimiser, and the average with its buffer.
StateDict outcome(const Parameters& parameters, const StateDict& state, const StateDict& average) {
  StateDict all;
  for (const Parameter& p : parameters.list) all.emplace(p.name, p.var.value().to(Device{}).clone());
  for (const auto& [name, tensor] : state) all.emplace("state." + name, tensor.to(Device{}).clone());
  for (const auto& [name, tensor] : average) all.emplace("average." + name, tensor.to(Device{}).clone());
  return all;
}

StateDict whole_run(const OptimizerConfig& config, Device device, const Offload& offload = {}) {
  Parameters parameters = odd_parameters(device), average = odd_parameters(device);
  const auto optimizer = make_optimizer(config, parameters, nullptr, offload);
  for (int step = 0; step < kStepsOfRun; ++step) {
    const std::vector<Tensor> gradients = odd_gradients(parameters, step);
    optimizer->step(parameters, gradients, 0.05, step, clip_by_global_norm(gradients, kLargestNorm).scale);
    parameters.buffers[0]->value = numbers({33}, 1000 + static_cast<uint64_t>(step)).to(device);
    follow(average, parameters, kAverageDecay, step);
  }
  return outcome(parameters, optimizer->state(), average.state());
}

// Puts the sums of a process where they belong. A replica must bring the same.
void place(const SegmentLayout& segments, std::span<const Slice> slices, const std::vector<double>& sums,
           std::vector<double>& all) {
  std::vector<double> placed(all.size(), std::nan(""));
  segments.place(slices, sums, placed);
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(placed[i])) continue;
    EXPECT_TRUE(std::isnan(all[i]) || placed[i] == all[i]) << "sum " << i;
    all[i] = placed[i];
  }
}

struct Process {
  Parameters parameters;
  SlicedOptimizer optimizer;
  Parameters average;  // whole, of the parameters that all processes have made
};

class Processes {
 public:
  Processes(const OptimizerConfig& config, Device device, const std::vector<std::vector<Slice>>& slices,
            const Offload& offload)
      : device_(device) {
    for (const std::vector<Slice>& mine : slices) {
      Parameters parameters = odd_parameters(device);
      SlicedOptimizer optimizer(config, parameters, mine, offload);
      all_.push_back({std::move(parameters), std::move(optimizer), odd_parameters(device)});
    }
  }

  void step(int step) {
    const std::vector<Tensor> gradients = odd_gradients(all_[0].parameters, step);
    std::vector<std::vector<Tensor>> mine;
    std::vector<double> squares(static_cast<size_t>(segments_.count()), std::nan(""));
    for (Process& p : all_) {
      mine.emplace_back();
      for (const Slice& s : p.optimizer.slices())
        mine.back().push_back(view_of(gradients[static_cast<size_t>(s.tensor)], s).clone());
      place(segments_, p.optimizer.slices(), segment_sums(mine.back()), squares);
    }
    EXPECT_EQ(squares, segment_sums(gradients));
    EXPECT_EQ(global_norm(squares), global_norm(gradients));
    const Clipping clipping = clip_by_global_norm(squares, kLargestNorm),
                   expected = clip_by_global_norm(gradients, kLargestNorm);
    EXPECT_EQ(clipping.norm, expected.norm);
    EXPECT_EQ(clipping.scale, expected.scale);
    EXPECT_LT(clipping.scale, 1.0);
    update(mine, step, clipping.scale);
    exchange_parameters();
    for (Process& p : all_) {
      p.parameters.buffers[0]->value = numbers({33}, 1000 + static_cast<uint64_t>(step)).to(device_);
      follow(p.average, p.parameters, kAverageDecay, step);
    }
  }

  // Changes what each process keeps, and copies what it did not have from those that had it.
  void keep(const std::vector<std::vector<Slice>>& slices) {
    const StateDict state = joined(&Processes::slots);
    for (size_t i = 0; i < all_.size(); ++i) {
      Process& p = all_[i];
      const std::vector<SlotSlice> before = p.optimizer.slots();
      p.optimizer.keep(slices[i]);
      EXPECT_EQ(p.optimizer.slices(), slices[i]);
      for (SlotSlice& s : p.optimizer.slots()) {
        const Tensor expected = view_of(state.at(s.name), s.slice);
        const auto kept = std::find_if(before.begin(), before.end(), [&](const SlotSlice& other) {
          return other.name == s.name && other.slice == s.slice;
        });
        if (kept != before.end()) {
          EXPECT_TRUE(kept->values.shares_storage(s.values)) << s.name;
          EXPECT_TRUE(same(s.values, expected)) << s.name;
          ++remained;
        } else {
          EXPECT_TRUE(same(s.values, Tensor::zeros(s.values.shape()))) << s.name;
          copy(expected, s.values);
          ++moved;
        }
      }
    }
  }

  StateDict outcome_of(size_t i) {
    return outcome(all_[i].parameters, joined(&Processes::slots), all_[i].average.state());
  }

  int remained = 0, moved = 0;  // slots of slices, in keep()

 private:
  static bool same(const Tensor& a, const Tensor& b) { return test::same_bits(a.to(Device{}), b.to(Device{})); }

  // A process that gathers sums waits for those after it: its callback updates them.
  void update(const std::vector<std::vector<Tensor>>& gradients, int step, double scale) {
    std::vector<double> sums(static_cast<size_t>(kSumsPerSegment * segments_.count()), std::nan(""));
    size_t calls = 0;
    std::function<void(size_t)> from = [&](size_t i) {
      if (i == all_.size()) return;
      Process& p = all_[i];
      p.optimizer.step(p.parameters, gradients[i], 0.05, step, scale, [&](const std::vector<double>& mine) {
        ++calls;
        place(segments_, p.optimizer.slices(), mine, sums);
        from(i + 1);
        return sums;
      });
      if (!p.optimizer.has_trust_ratio()) from(i + 1);
    };
    from(0);
    EXPECT_EQ(calls, all_[0].optimizer.has_trust_ratio() ? all_.size() : 0);
  }

  // Every process gets the slices of all others. Replicas must have the same.
  void exchange_parameters() {
    Parameters next = odd_parameters(device_);
    for (Parameter& p : next.list) p.var = Var(Tensor::full(p.var.shape(), std::nan(""), DType::f32, device_), true);
    for (const Process& p : all_) {
      const std::span<const Slice> slices = p.optimizer.slices();
      std::vector<Tensor> from = views_of(p.parameters, slices), to = views_of(next, slices);
      for (size_t i = 0; i < from.size(); ++i) {
        const Tensor there = to[i].to(Device{});
        EXPECT_TRUE(std::isnan(there.data<float>()[0]) || same(from[i], there));
        copy(from[i], to[i]);
      }
    }
    for (Process& p : all_)
      for (size_t t = 0; t < next.list.size(); ++t)
        copy(next.list[t].var.value(), p.parameters.list[t].var.mutable_value());
  }

  static std::vector<SlotSlice> slots(const Process& p) { return p.optimizer.slots(); }

  // The slots of all processes, as whole tensors.
  StateDict joined(std::vector<SlotSlice> (*slots_of)(const Process&)) const {
    const std::vector<std::string> names =
        slots_of == &Processes::slots ? all_[0].optimizer.slot_names() : std::vector<std::string>{""};
    StateDict whole;
    for (const Parameter& p : all_[0].parameters.list)
      for (const std::string& name : names)
        whole.emplace(name.empty() ? p.name : p.name + "." + name,
                      Tensor::full(p.var.shape(), std::nan(""), DType::f32, device_));
    for (const Process& p : all_)
      for (const SlotSlice& s : slots_of(p)) {
        Tensor view = view_of(whole.at(s.name), s.slice);
        copy(s.values, view);
      }
    return whole;
  }

  Device device_;
  SegmentLayout segments_{shapes_of(odd_parameters({}))};
  std::vector<Process> all_;
};

void expect_same(const StateDict& got, const StateDict& expected, const std::string& where) {
  ASSERT_EQ(got.size(), expected.size()) << where;
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(got.contains(name)) << where << ", " << name;
    EXPECT_TRUE(test::same_bits(got.at(name), tensor)) << where << ", " << name;
  }
}

std::vector<OptimizerConfig> all_configs() {
  return {{.kind = "sgd", .momentum = 0.0},
          {.kind = "sgd", .momentum = 0.9, .weight_decay = 0.1},
          {.kind = "sgd", .momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
          {.kind = "lars", .momentum = 0.0, .weight_decay = 0.1, .trust = 0.02},
          {.kind = "lars", .momentum = 0.9, .weight_decay = 0.1, .trust = 0.02},
          {.kind = "lars", .momentum = 0.9, .nesterov = true},
          {.kind = "adam", .weight_decay = 0.1},
          {.kind = "adamw", .beta2 = 0.95, .weight_decay = 0.1},
          {.kind = "lamb", .weight_decay = 0.1}};
}

void expect_bits_of_whole(const OptimizerConfig& config, Device device, size_t processes, uint32_t seed,
                          const Offload& offload = {}) {
  const std::string where = config.kind + " on " + to_string(device) + ", " + std::to_string(processes) + " processes";
  std::mt19937 random(seed);
  const auto first = assigned(processes, random), second = assigned(processes, random);
  Processes divided(config, device, first, offload);
  for (int step = 0; step < kStepsOfRun; ++step) {
    if (step == 3) divided.keep(second);
    divided.step(step);
  }
  const StateDict expected = whole_run(config, {});
  for (size_t i = 0; i < processes; ++i) expect_same(divided.outcome_of(i), expected, where);
  if (config.momentum != 0.0 || config.kind == "lamb" || config.kind.starts_with("adam")) {
    EXPECT_GT(divided.remained, 0) << where;
    EXPECT_GT(divided.moved, 0) << where;
  }
}

TEST(SlicedOptimizer, HasTheBitsOfTheWholeUpdate) {
  for (const OptimizerConfig& config : all_configs())
    for (size_t processes : {1, 2, 3})
      expect_bits_of_whole(config, {}, processes, static_cast<uint32_t>(17 * processes));
}

TEST(SlicedOptimizer, HasTheSameBitsOnGpus) {
  for (const Device device : test::other_devices())
    for (const OptimizerConfig& config : all_configs()) {
      expect_same(whole_run(config, device), whole_run(config, {}), config.kind + " on " + to_string(device));
      expect_bits_of_whole(config, device, 2, 5);
    }
}

std::vector<Device> all_devices() {
  std::vector<Device> devices = test::devices_of_the_build();
  devices.emplace_back();
  return devices;
}
class OffloadedState : public ::testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(, OffloadedState, ::testing::ValuesIn(all_devices()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });

TEST_P(OffloadedState, HasTheSameBits) {
  const Device device = GetParam();
  if (!test::is_here(device)) GTEST_SKIP() << "this machine has no GPU";
  const test::TemporaryFolder folder;
  for (const OptimizerConfig& config : all_configs())
    for (const Offload::To to : {Offload::To::host, Offload::To::file}) {
      Offload offload{.to = to, .folder = folder.path(), .part = 3 * kRowSegment};
      if (!offload.elsewhere(device)) continue;
      if (config.kind == "adamw" || config.kind == "lamb") expect_bits_of_whole(config, device, 2, 5, offload);
      offload.part = 1;  // a segment
      expect_same(whole_run(config, device, offload), whole_run(config, {}), config.kind);
    }
}

TEST(SlicedOptimizer, TestsOfTrustRatiosCanFail) {
  for (const char* kind : {"lars", "lamb"}) {
    const OptimizerConfig config{.kind = kind, .weight_decay = 0.1};
    const Shape shape{3 * kRowSegment};
    const auto stepped = [&](double factor) {
      Parameters parameters;
      parameters.list.push_back({"w", Var(numbers(shape, 1), true)});
      SlicedOptimizer optimizer(config, parameters, {{0, 0, shape[0]}});
      optimizer.step(parameters, std::vector<Tensor>{numbers(shape, 2)}, 0.1, 0, 1.0, [&](std::vector<double> sums) {
        EXPECT_EQ(sums.size(), 6u);
        const Tensor p = numbers(shape, 1).slice(0, kRowSegment, 2 * kRowSegment);
        EXPECT_EQ(sums[2], square_sum({&p, 1}));
        if (std::string(kind) == "lars") {
          const Tensor g = numbers(shape, 2).slice(0, kRowSegment, 2 * kRowSegment);
          EXPECT_EQ(sums[3], square_sum({&g, 1}));
        }
        sums[5] *= factor;
        return sums;
      });
      return parameters.list[0].var.value();
    };
    EXPECT_FALSE(test::same_bits(stepped(1.0), stepped(2.0))) << kind;
  }
}

TEST(SlicedOptimizer, MayKeepNothing) {
  for (const OptimizerConfig& config : all_configs()) {
    Parameters parameters = odd_parameters({});
    SlicedOptimizer optimizer(config, parameters, {});
    const auto segments = static_cast<size_t>(SegmentLayout(shapes_of(parameters)).count());
    int calls = 0;
    optimizer.step(parameters, {}, 0.1, 0, 1.0, [&](const std::vector<double>& mine) {
      EXPECT_TRUE(mine.empty());
      ++calls;
      return std::vector<double>(kSumsPerSegment * segments, 1.0);
    });
    EXPECT_EQ(calls, config.kind == "lars" || config.kind == "lamb" ? 1 : 0) << config.kind;
    EXPECT_TRUE(optimizer.slots().empty());
    expect_same(outcome(parameters, {}, {}), outcome(odd_parameters({}), {}, {}), config.kind);
  }
}

TEST(SlicedOptimizer, UpdatesOnlyItsSlicesAndKeepsStateForNoOthers) {
  Parameters parameters = odd_parameters({});
  const std::vector<Slice> slices = {{0, 4096, 8192}, {4, 4096, 5000}};
  SlicedOptimizer optimizer({.kind = "adamw"}, parameters, slices);
  optimizer.step(parameters, std::vector<Tensor>{Tensor::full({4096}, 1.0), Tensor::full({904}, 1.0)}, 0.1, 0, 1.0, {});
  const Parameters before = odd_parameters({});
  for (size_t t = 0; t < before.list.size(); ++t) {
    const Tensor &was = before.list[t].var.value(), &is = parameters.list[t].var.value();
    for (int64_t i = 0; i < was.numel(); ++i) {
      const bool mine = std::any_of(slices.begin(), slices.end(), [&](const Slice& s) {
        return s.tensor == static_cast<int>(t) && s.begin <= i && i < s.end;
      });
      ASSERT_EQ(was.data<float>()[i] != is.data<float>()[i], mine) << before.list[t].name << " " << i;
    }
  }
  std::vector<std::string> names;
  int64_t elements = 0;
  for (const SlotSlice& s : optimizer.slots()) {
    names.push_back(s.name);
    EXPECT_EQ(s.values.shape(), Shape{s.slice.numel()});
    elements += s.values.numel();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"matrix.m", "matrix.v", "bias.m", "bias.v"}));
  EXPECT_EQ(elements, 2 * 5000);
}

TEST(SlicedOptimizer, SlotsAreViewsAndDroppedOnesAreFreed) {
  const Parameters parameters = odd_parameters({});
  SlicedOptimizer optimizer({.kind = "sgd"}, parameters, {{0, 0, 4096}, {0, 4096, 8192}});
  optimizer.slots()[1].values.data<float>()[5] = 3;
  EXPECT_EQ(optimizer.slots()[1].values.data<float>()[5], 3);
  const Tensor dropped = optimizer.slots()[0].values;
  EXPECT_FALSE(dropped.unique());
  optimizer.keep({{0, 4096, 8192}, {6, 0, 4096}});
  EXPECT_TRUE(dropped.unique());
  EXPECT_EQ(optimizer.slots()[0].values.data<float>()[5], 3);
  EXPECT_EQ(optimizer.slots()[1].values.data<float>()[5], 0);
  // Other ends make another slice.
  optimizer.keep({{0, 4096, 3 * 4096}});
  EXPECT_EQ(optimizer.slots()[0].values.data<float>()[5], 0);
}

TEST(SlicedOptimizer, RefusesWhatDoesNotFit) {
  Parameters parameters = odd_parameters({});
  const OptimizerConfig lars{.kind = "lars"};
  EXPECT_THROW(SlicedOptimizer(lars, parameters, {{0, 1, 4096}}), UsageError);
  SlicedOptimizer optimizer(lars, parameters, {{0, 0, 4096}});
  optimizer.slots()[0].values.data<float>()[0] = 2;
  EXPECT_THROW(optimizer.keep({{0, 0, 5000}}), UsageError);
  EXPECT_EQ(optimizer.slots()[0].values.data<float>()[0], 2);
  const std::vector<Tensor> gradient = {Tensor::zeros({4096})};
  const GatherSums same = [](std::vector<double> mine) { return mine; };
  const auto error_of = [&](std::span<const Tensor> gradients, const GatherSums& gather) {
    return test::message_of<UsageError>([&] { optimizer.step(parameters, gradients, 0.1, 0, 1.0, gather); });
  };
  EXPECT_EQ(error_of({}, same), "[optimizer] 1 slices but 0 gradients");
  EXPECT_EQ(error_of(gradient, {}), "[optimizer] trust ratios need a function that gathers sums");
  EXPECT_EQ(error_of(gradient, same), "[optimizer] 44 sums of segments of all parameters expected, got 2");
  EXPECT_EQ(error_of(std::vector<Tensor>{Tensor::zeros({64, 64})}, same),
            "[optimizer] the gradient of matrix must be float32 of shape (4096,) on a cpu");
}

// Does nothing: other tests of this program run all kinds.
struct Idle final : Optimizer {
  void step(Parameters&, std::span<const Tensor>, double, int64_t, double) override {}
  StateDict state() const override { return {}; }
};

TEST(SlicedOptimizer, RegisteredKindsAreWhole) {
  register_optimizer({"of_the_program", [](Settings&, const Parameters&) { return std::make_unique<Idle>(); }});
  EXPECT_EQ(test::message_of<UsageError>([] { check_can_slice({.kind = "of_the_program"}); }),
            "optimizer.kind = 'of_the_program' is a kind that the program registers, whose state cannot be divided "
            "among workers; leave out --arrangement");
  EXPECT_THROW(SlicedOptimizer({.kind = "of_the_program"}, odd_parameters({}), {}), UsageError);
  EXPECT_NO_THROW(check_can_slice({.kind = "lamb"}));
  const Offload offload{.to = Offload::To::file, .folder = "/tmp"};
  EXPECT_EQ(
      test::message_of<UsageError>([&] { make_optimizer({.kind = "of_the_program"}, {}, nullptr, offload); }),
      "optimizer.kind = 'of_the_program' is a kind that the program registers, which decides itself where its state "
      "lies; leave out --offload");
}

}  // namespace
}  // namespace elinvar
