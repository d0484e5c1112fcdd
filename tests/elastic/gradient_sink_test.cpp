#include "elastic/session/gradient_sink.h"

#include <gtest/gtest.h>

#include <optional>

namespace elinvar {
namespace {

Tensor values(float value, Device device = {}) { return Tensor::full({3}, value).to(device); }

std::vector<float> firsts(const std::vector<Tensor>& tensors) {
  std::vector<float> firsts;
  for (const Tensor& t : tensors) firsts.push_back(t.defined() ? t.to(Device{}).data<float>()[0] : -1);
  return firsts;
}

// The passes of three parameters and a batch norm, from the last parameter to the first.
void compute(GradientSink& sink, Device device = {}) {
  const std::vector<Tensor> statistics = {values(10, device), values(11, device)};
  if (sink.begin()) {
    sink.forward(5, statistics);
    for (const size_t parameter : {2, 1, 0}) sink.gradient(parameter, values(static_cast<float>(parameter), device));
    return sink.end();
  }
  sink.end({values(0, device), values(1, device), values(2, device)}, statistics);
}

void expect_whole(GradientSink& sink, Device device) {
  const RankGradient gradient = sink.take({.count = 5, .samples = 4});
  EXPECT_EQ(firsts(gradient.gradients), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(firsts(gradient.batch_statistics), (std::vector<float>{10, 11}));
  EXPECT_EQ(gradient.facts.count, 5);
  EXPECT_EQ(gradient.facts.samples, 4);
  for (const Tensor& t : gradient.gradients) EXPECT_EQ(t.device(), device);
  for (const Tensor& t : gradient.batch_statistics) EXPECT_EQ(t.device(), device);
}

TEST(GradientSink, KeepsTensorsInTheOrderOfTheParameters) {
  GradientSink sink;
  Tensor input = values(7);
  sink.reads(input);
  EXPECT_EQ(firsts({input}), std::vector<float>{7});
  compute(sink);
  expect_whole(sink, {});
  EXPECT_FALSE(sink.make_room());
}

TEST(GradientSink, TakesAllAtTheEndWhereTheyStay) {
  GradientSink sink(GradientSink::Place::device);
  EXPECT_FALSE(sink.begin());
  compute(sink);
  expect_whole(sink, {});
}

TEST(GradientSink, OfNoSamplesIsEmpty) {
  GradientSink sink;
  const RankGradient gradient = sink.take({});
  EXPECT_TRUE(gradient.gradients.empty());
  EXPECT_TRUE(gradient.batch_statistics.empty());
}

// A sink that passes tensors on from the second attempt on.
struct Passing final : GradientSink, GradientReceiver {
  Plan plan() override { return {.place = place, .receiver = passes ? this : nullptr}; }
  void open(int64_t targets, std::vector<Tensor> batch_statistics, const Mark&) override {
    EXPECT_FALSE(count) << "opened twice";
    count = targets;
    statistics = std::move(batch_statistics);
  }
  void put(size_t parameter, Tensor gradient, const Mark&) override {
    EXPECT_TRUE(count) << "not open";
    order.push_back(parameter);
    device = gradient.device();
  }
  Place place = Place::cpu;
  bool passes = true;
  std::optional<int64_t> count;
  std::vector<Tensor> statistics;
  std::vector<size_t> order;
  Device device;
};

TEST(GradientSink, PassesTensorsOnInTheOrderInWhichTheyCome) {
  Passing sink;
  compute(sink);
  EXPECT_EQ(sink.count, 5);
  EXPECT_EQ(firsts(sink.statistics), (std::vector<float>{10, 11}));
  EXPECT_EQ(sink.order, (std::vector<size_t>{2, 1, 0}));
  EXPECT_TRUE(sink.take({}).gradients.empty());
}

TEST(GradientSink, DropsWhatCameBeforeAnotherAttempt) {
  Passing sink;
  sink.passes = false;
  EXPECT_TRUE(sink.begin());
  sink.forward(4, {values(20)});
  sink.gradient(5, values(21));
  compute(sink);
  expect_whole(sink, {});
  EXPECT_FALSE(sink.count);
}

#ifdef ELINVAR_EMULATION

const Device kSinkGpu{DeviceKind::emulated};

TEST(GradientSink, BringsTensorsOfAGpuToTheCpu) {
  GradientSink kept;
  compute(kept, kSinkGpu);
  expect_whole(kept, {});
  Passing passing;
  compute(passing, kSinkGpu);
  EXPECT_EQ(passing.order, (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(passing.device, Device{});
}

TEST(GradientSink, LeavesTensorsOfAGpuThere) {
  GradientSink kept(GradientSink::Place::device);
  compute(kept, kSinkGpu);
  expect_whole(kept, kSinkGpu);
  Passing passing;
  passing.place = GradientSink::Place::device;
  compute(passing, kSinkGpu);
  EXPECT_EQ(passing.count, 5);
  EXPECT_EQ(passing.order, (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(passing.device, kSinkGpu);
}

#endif

}  // namespace
}  // namespace elinvar
