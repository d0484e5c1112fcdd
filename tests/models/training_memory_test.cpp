// Memory of a training step: values and gradients are freed as soon as they are no longer needed, recomputation trades
// memory for time with the same bits, and a step like the previous one allocates nothing from the system.
#include <gtest/gtest.h>

#include "autograd/linear.h"
#include "autograd/loss.h"
#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/recompute.h"
#include "autograd/reduce.h"
#include "models/build.h"
#include "nn/micro_batch.h"
#include "nn/optimizer.h"
#include "tensor/allocator.h"
#include "tensor/stream.h"
#include "tests/support/bits.h"

namespace elinvar {
namespace {

using test::same_bits;

Tensor uniform(const Shape& shape, uint64_t seed) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = 2.0f * uniform01(philox(seed, static_cast<uint32_t>(i), 0, 0, 0).v[0]) - 1.0f;
  return x;
}

// Returns the peak memory of f beyond what was in use before, in tensors of `bytes`.
template <class F>
double most_tensors(int64_t bytes, F f) {
  HostAllocator& allocator = HostAllocator::instance();
  allocator.reset_peak();
  const int64_t before = allocator.stats().in_use;
  f();
  return static_cast<double>(allocator.stats().peak_in_use - before) / static_cast<double>(bytes);
}

TEST(TrainingMemory, GradientsAreWrittenOverGradients) {
  const Var x(uniform({1 << 18}, 1), true);
  const int64_t bytes = x.value().bytes();
  Var loss = sum(relu(relu(relu(relu(x)))));
  EXPECT_LT(most_tensors(bytes, [&] { backward(loss); }), 1.5);  // the expanded gradient of sum, materialised
}

TEST(TrainingMemory, ValuesThatNoGradientNeedsAreFreedDuringTheForwardPass) {
  const Var x(uniform({1 << 18}, 1), true);
  Var y = x;
  const double most = most_tensors(x.value().bytes(), [&] {
    for (int i = 0; i < 6; ++i) y = add(y, 1.0);
  });
  EXPECT_LT(most, 2.5);  // a sum and the one before
}

TEST(TrainingMemory, TheGradientOfLogitsIsWrittenOverThem) {
  CpuStream one(1);  // each thread of a product has its own packing buffer
  const StreamScope scope(one);
  const Var x(uniform({64, 8}, 1), true), weight(uniform({4096, 8}, 2), true);
  const Tensor target = Tensor::zeros({64}, DType::i64);
  const int64_t bytes = 64 * 4096 * 4;
  Var loss = cross_entropy(linear(x, weight), target);
  const int64_t before = HostAllocator::instance().stats().in_use;
  EXPECT_LT(most_tensors(bytes, [&] { backward(loss); }), 0.75);  // the weight's gradient, and memory for products
  EXPECT_LT(HostAllocator::instance().stats().in_use, before - bytes / 2);  // the logits are gone
  // A handle held by the caller keeps the logits.
  const Var logits = linear(x, weight);
  const Tensor copy = logits.value().clone();
  backward(cross_entropy(logits, target));
  EXPECT_TRUE(same_bits(logits.value(), copy));
}

TEST(Recompute, RunsAgainForTheSameGradients) {
  const Tensor input = uniform({64, 32}, 1);
  const Var weight(uniform({32, 32}, 2), true), bias(uniform({32}, 3), true);
  int runs = 0;
  const auto f = [&](const Var& v) {
    ++runs;
    return gelu(linear(v + gelu(v), weight, bias)) + v;
  };
  const auto gradients = [&](bool again) {
    const Var x(input, true);
    const Var y = x * 2.0;
    const Var z = again ? recompute(f, y) : f(y);
    const Tensor value = z.value();
    backward(sum(square(z)));
    return std::vector<Tensor>{value, x.grad(), weight.grad(), bias.grad()};
  };
  const auto kept = gradients(false), made_again = gradients(true);
  EXPECT_EQ(runs, 3);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(same_bits(kept[i], made_again[i])) << i;
}

TEST(Recompute, LeavesThatAreUsedElsewhereKeepTheirOtherContributions) {
  const Tensor input = uniform({8, 8}, 1);
  const Var weight(uniform({8, 8}, 2), true);
  const auto gradient = [&](bool again) {
    const auto f = [&](const Var& v) { return linear(v, weight); };
    const Var x(input), y = linear(x, weight), z = again ? recompute(f, y) : f(y);
    backward(sum(square(linear(z, weight))));
    return weight.grad();
  };
  EXPECT_TRUE(same_bits(gradient(false), gradient(true)));
}

TEST(Recompute, ConstantsAndIdentities) {
  const Var constant(uniform({4}, 1)), x(uniform({4}, 2), true);
  EXPECT_FALSE(recompute([](const Var& v) { return relu(v); }, constant).requires_grad());
  backward(sum(recompute([](const Var& v) { return v; }, x)));
  EXPECT_TRUE(same_bits(x.grad(), Tensor::full({4}, 1.0)));
  const NoGrad none;
  EXPECT_FALSE(recompute([](const Var& v) { return relu(v); }, x).requires_grad());
}

struct MemoryCase {
  std::string kind;
  std::map<std::string, Setting> settings;
  InputInfo input;
  double share;        // the maximum fraction of the memory with recomputation
  double exact_share;  // and with exact numerics
};

class Networks : public ::testing::TestWithParam<MemoryCase> {};

TEST_P(Networks, RecomputeToTheSameBitsInLessMemory) {
  CpuStream one(1);  // the number of concurrent packing buffers would vary
  const StreamScope scope(one);
  const MemoryCase& c = GetParam();
  const bool text = c.input.dtype == DType::i32;
  const int64_t batch = text ? 4 : 8;
  const auto network = build({.kind = c.kind, .settings = c.settings}, c.input, 1);
  Shape shape = c.input.sample;
  shape.insert(0, batch);
  const Tensor input = text ? Tensor::full(shape, 3.0, DType::i32) : uniform(shape, 5);
  const Tensor target = text ? Tensor::full(shape, 2.0, DType::i32) : Tensor::full({batch}, 1.0, DType::i64);
  MicroBatchResult kept, again;
  const auto run = [&](bool recompute, MicroBatchResult& result) {
    return most_tensors(
        1, [&] { result = micro_batch_gradient(*network, input, target, {}, Rng{.seed = 7, .step = 2}, recompute); });
  };
  const double most_kept = run(false, kept), most_again = run(true, again);
  EXPECT_LE(most_again, c.share * most_kept);
  EXPECT_EQ(kept.loss_sum, again.loss_sum);
  ASSERT_EQ(kept.gradients.size(), again.gradients.size());
  for (size_t i = 0; i < kept.gradients.size(); ++i)
    EXPECT_TRUE(same_bits(kept.gradients[i], again.gradients[i])) << network->parameters.list[i].name;
  ASSERT_EQ(kept.statistics.size(), again.statistics.size());
  for (size_t i = 0; i < kept.statistics.size(); ++i) {
    EXPECT_EQ(kept.statistics[i].running_mean, again.statistics[i].running_mean);
    EXPECT_TRUE(same_bits(kept.statistics[i].batch.mean, again.statistics[i].batch.mean));
    EXPECT_TRUE(same_bits(kept.statistics[i].batch.var, again.statistics[i].batch.var));
  }
}

// An exact product keeps only the rounded copy of an activation, in two bytes an element. Where images are few, the
// rounded weights of the current product take more than that saves.
TEST_P(Networks, KeepLessWithExactNumerics) {
  CpuStream one(1);
  const StreamScope scope(one);
  const MemoryCase& c = GetParam();
  const bool text = c.input.dtype == DType::i32;
  const int64_t batch = text ? 16 : 32;
  const auto network = build({.kind = c.kind, .settings = c.settings}, c.input, 1);
  Shape shape = c.input.sample;
  shape.insert(0, batch);
  const Tensor input = text ? Tensor::full(shape, 3.0, DType::i32) : uniform(shape, 5);
  const Tensor target = text ? Tensor::full(shape, 2.0, DType::i32) : Tensor::full({batch}, 1.0, DType::i64);
  const auto most = [&](Precision precision) {
    const PrecisionScope products(precision);
    return most_tensors(1,
                        [&] { micro_batch_gradient(*network, input, target, {}, Rng{.seed = 7, .step = 2}, false); });
  };
  EXPECT_LE(most(Precision::exact), c.exact_share * most(Precision::portable));
}

// A step like the previous one. One thread, so that the order of allocations is the same in both.
TEST_P(Networks, AskTheSystemForNothingOnceTheyRun) {
  const MemoryCase& c = GetParam();
  const bool text = c.input.dtype == DType::i32;
  CpuStream single(1);
  const StreamScope scope(single);
  const auto network = build({.kind = c.kind, .settings = c.settings}, c.input, 1);
  const auto optimizer = make_optimizer({.kind = "adamw", .lr = 1e-3}, network->parameters);
  Shape shape = c.input.sample;
  shape.insert(0, 4);
  const Tensor input = text ? Tensor::full(shape, 3.0, DType::i32) : uniform(shape, 5);
  const Tensor target = text ? Tensor::full(shape, 2.0, DType::i32) : Tensor::full({4}, 1.0, DType::i64);
  int64_t after_two = 0;
  for (int64_t step = 0; step < 5; ++step) {
    const MicroBatchResult result =
        micro_batch_gradient(*network, input, target, {}, Rng{.step = static_cast<uint32_t>(step)});
    optimizer->step(network->parameters, result.gradients, 1e-3, step, 0.25);
    if (step == 1) after_two = HostAllocator::instance().stats().system_calls;
  }
  EXPECT_EQ(HostAllocator::instance().stats().system_calls, after_two);
}

const InputInfo kHeldImage{.sample = {32, 32, 3}, .classes = 10};
const InputInfo kHeldTokens{.sample = {32}, .classes = 50, .dtype = DType::i32};
INSTANTIATE_TEST_SUITE_P(
    TrainingMemory, Networks,
    ::testing::Values(MemoryCase{"resnet20", {}, kHeldImage, 0.6, 0.65},
                      MemoryCase{"vgg11", {}, kHeldImage, 0.99, 1.05},
                      MemoryCase{"mobilenet_v2", {{"width", {0.5}}}, kHeldImage, 0.99, 1.05},
                      MemoryCase{"vit_tiny", {{"layers", {int64_t{6}}}}, kHeldImage, 0.99, 1.05},
                      MemoryCase{"gpt", {{"layers", {int64_t{6}}}, {"dropout", {0.1}}}, kHeldTokens, 0.85, 0.62},
                      MemoryCase{
                          "llama", {{"layers", {int64_t{6}}}, {"kv_heads", {int64_t{2}}}}, kHeldTokens, 0.75, 0.75}),
    [](const auto& of) { return of.param.kind; });

}  // namespace
}  // namespace elinvar
