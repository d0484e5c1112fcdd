// Networks with products on tensor cores: gradients, whole networks, and values between products, which are bfloat16 if
// the products' factors are.
#include <fmt/format.h>

#include <map>
#include <set>

#include "autograd/conv.h"
#include "autograd/linear.h"
#include "autograd/loss.h"
#include "autograd/norm.h"
#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "models/build.h"
#include "nn/micro_batch.h"
#include "nn/optimizer.h"
#include "nn/task.h"
#include "tensor/allocator.h"
#include "tensor/trace.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/on_tensor_cores.h"

namespace elinvar::test {
namespace {

class FastProductsInNetworks : public OnTensorCores {};
INSTANTIATE_TEST_SUITE_P(, FastProductsInNetworks, testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FastProductsInNetworks);

// Records the precisions of products and the types of their operands.
class Precisions : public Recorder {
 public:
  void begins(const AnyOp& op, const TraceValues& arguments) override {
    for (const TraceValue& v : arguments)
      if (v.name == "precision") seen_.insert(op.name() + " " + v.number);
  }
  void ends(const TraceValues&, const OpWork&) override {}
  const std::set<std::string>& seen() const { return seen_; }

 private:
  std::set<std::string> seen_;
};

struct Net {
  const char* kind;
  std::vector<std::pair<std::string, Value>> settings;
  InputInfo input;
  Input batch;  // indices for tokens, normal numbers for images
  Shape targets;
  std::vector<std::string> products;  // "matmul 0": computed portably in each precision
  double lr = 3e-3;
  // Maximum differences of the losses of three steps from portable ones, relative to these. The largest of five batches
  // were 3e-4 and 3e-5.
  double apart_in_bf16 = 1e-3, apart_in_tf32 = 2e-4;

  std::unique_ptr<Network> built() const {
    Spec spec{.kind = kind};
    for (const auto& [name, value] : settings) spec.settings[name] = {value};
    return build(spec, input, 1);
  }
  Tensor made_batch() const { return make_inputs({batch}, "batch")[0].to(input.dtype); }
  Tensor made_targets() const { return make_inputs({{targets, Input::Kind::index, input.classes}}, "targets")[0]; }
};

// Returns small networks of each architecture, without dropout, so that losses are close to portable ones.
std::vector<Net> networks() {
  const auto number = [](int64_t x) { return Value(x); };
  const InputInfo tokens{.sample = {12}, .classes = 40, .dtype = DType::i32};
  const Input text{{2, 12}, Input::Kind::index, 40};
  return {{"gpt",
           {{"layers", number(2)}, {"heads", number(2)}, {"channels", number(32)}},
           tokens,
           text,
           {2, 12},
           {"matmul", "self_attention", "self_attention_backward"}},
          {"gpt",
           {{"layers", number(1)}, {"heads", number(2)}, {"channels", number(32)}, {"experts", number(4)}},
           tokens,
           text,
           {2, 12},
           {"matmul", "matmul 0", "self_attention", "self_attention_backward"}},
          {"llama",
           {{"layers", number(2)}, {"heads", number(4)}, {"kv_heads", number(2)}, {"channels", number(32)}},
           tokens,
           text,
           {2, 12},
           {"matmul", "attention", "attention_backward"}},
          {"llama",
           {{"layers", number(1)}, {"heads", number(2)}, {"channels", number(32)}, {"experts", number(4)}},
           tokens,
           text,
           {2, 12},
           {"matmul", "matmul 0", "attention", "attention_backward"}},
          {"bert",
           {{"layers", number(2)},
            {"heads", number(2)},
            {"channels", number(32)},
            {"dropout", 0.0},
            {"virtual_shards", number(2)}},
           tokens,
           text,
           {2, 12},
           {"matmul", "attention", "attention_backward"}},
          {"resnet20",
           {},
           {.sample = {16, 16, 3}, .classes = 40},
           {{3, 16, 16, 3}},
           {3},
           {"matmul", "conv2d", "conv2d_grad_input", "conv2d_grad_filter"},
           3e-4,
           // With three images losses average out little, and the last batch norms see 48 values per channel: roundings
           // alone change the first loss by up to 2e-3 and later ones by 4e-3; with 24 images, a quarter of that.
           5e-3,
           5e-3}};
}

struct TrainedFast {
  std::vector<double> losses;
  Digest state;
};

// Trains three steps and checks that parameters and their gradients are float32.
TrainedFast train(const Net& net, Device device, Precision precision, bool recompute = false) {
  const auto network = net.built();
  network->parameters.move_to(device);
  const OptimizerConfig options{.kind = "adamw", .lr = net.lr, .weight_decay = 0.1};
  const auto optimizer = make_optimizer(options, network->parameters);
  const Tensor input = net.made_batch(), target = net.made_targets();
  TrainedFast result;
  for (int64_t step = 0; step < 3; ++step) {
    const MicroBatchResult found = [&] {
      const PrecisionScope scope(precision);
      return micro_batch_gradient(*network, input.to(device), target, {},
                                  Rng{.seed = 1, .step = static_cast<uint32_t>(step)}, recompute);
    }();
    result.losses.push_back(found.loss_sum);
    for (const Tensor& gradient : found.gradients) EXPECT_EQ(gradient.dtype(), DType::f32);
    optimizer->step(network->parameters, found.gradients, options.lr, step, 1.0);
  }
  for (const auto& [name, tensor] : network->parameters.state()) EXPECT_EQ(tensor.dtype(), DType::f32) << name;
  result.state = digest(network->parameters.state());
  return result;
}

TEST_P(FastProductsInNetworks, NetworksTrainOnMasterWeightsWithinATolerance) {
  for (const Net& net : networks()) {
    SCOPED_TRACE(net.kind);
    const TrainedFast portable = train(net, device_, Precision::portable);
    for (const Precision precision : kFast) {
      Precisions recorder;
      TrainedFast fast;
      {
        const RecordScope recording(recorder);
        fast = train(net, device_, precision);
      }
      EXPECT_EQ(train(net, device_, precision).state.hex(), fast.state.hex()) << "from run to run";
      EXPECT_EQ(train(net, device_, precision, true).state.hex(), fast.state.hex()) << "with recomputed blocks";
      EXPECT_NE(fast.state.hex(), portable.state.hex());
      const bool narrow = precision == Precision::bf16;
      const double apart = narrow ? net.apart_in_bf16 : net.apart_in_tf32;
      for (size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(fast.losses[i], portable.losses[i], apart * portable.losses[i]) << name_of(precision);
      std::set<std::string> expected;
      for (const std::string& product : net.products) {
        const bool portably = product.find("attention") != std::string::npos && !narrow;
        if (product.ends_with(" 0")) expected.insert(product);
        else expected.insert(fmt::format("{} {}", product, portably ? 0 : static_cast<int>(precision)));
      }
      EXPECT_EQ(recorder.seen(), expected);
    }
  }
}

// The generator draws tokens from a bfloat16 value, and the values between segments are bfloat16, too.
TEST_P(FastProductsInNetworks, AnElectraHasTheSameGradientsFromRunToRun) {
  const InputInfo info{
      .sample = {12}, .classes = 40, .dtype = DType::i32, .further = {{.sample = {12}, .dtype = DType::i32}}};
  Spec spec{.kind = "electra"};
  for (const auto& [name, value] : std::map<std::string, int64_t>{
           {"layers", 1}, {"heads", 2}, {"channels", 16}, {"generator_heads", 2}, {"virtual_shards", 2}})
    spec.settings[name] = {value};
  const auto network = build(spec, info, 1);
  network->parameters.move_to(device_);
  const Tensor tokens = make_inputs({{{2, 12}, Input::Kind::index, 40}}, "batch")[0].to(DType::i32);
  const elinvar::Inputs inputs(tokens.to(device_), {tokens.to(device_)});  // every token is to be predicted
  const Task task = make_task(Spec{.kind = "replaced_tokens"}, {}, {.sample = {12}, .classes = 40}).task;
  const auto gradients = [&](Precision precision, bool recompute) {
    const PrecisionScope scope(precision);
    const MicroBatchResult made =
        micro_batch_gradient(*network, inputs, Targets(tokens.to(DType::i64)), task, Rng{.seed = 1}, recompute);
    StateDict all;
    for (size_t i = 0; i < made.gradients.size(); ++i) {
      EXPECT_EQ(made.gradients[i].dtype(), DType::f32);
      all.emplace(std::to_string(i), made.gradients[i]);
    }
    return digest(all).hex();
  };
  for (const Precision precision : kFast) {
    EXPECT_EQ(gradients(precision, false), gradients(precision, true)) << name_of(precision);
    EXPECT_NE(gradients(precision, false), gradients(Precision::portable, false)) << name_of(precision);
  }
}

// Counts the bytes that the ops of a rank gradient read and write.
class Traffic : public Recorder {
 public:
  void begins(const AnyOp&, const TraceValues& arguments) override { add(arguments); }
  void ends(const TraceValues& results, const OpWork&) override { add(results); }
  int64_t bytes() const { return bytes_; }

 private:
  void add(const TraceValues& values) {
    for (const TraceValue& v : values)
      if (v.tensor.defined()) bytes_ += v.tensor.bytes();
  }
  int64_t bytes_ = 0;
};

TEST_P(FastProductsInNetworks, ActivationsTakeHalfTheMemory) {
  if (!emulated()) GTEST_SKIP() << "the emulated device has its memory from the allocator that is asked";
  Net net = networks()[0];
  net.input.sample = {32};
  net.batch.shape = net.targets = {8, 32};
  const auto network = net.built();
  network->parameters.move_to(device_);
  const Tensor input = there(net.made_batch()), target = net.made_targets();
  const HostAllocator& memory = HostAllocator::instance();
  const auto costs = [&](Precision precision) {
    const PrecisionScope scope(precision);
    Context context{.training = true};
    const int64_t before = memory.stats().in_use;
    const Var loss = cross_entropy(network->forward(input, context), target);
    const int64_t held = memory.stats().in_use - before;
    Traffic traffic;
    const RecordScope recording(traffic);
    micro_batch_gradient(*network, input, target, {}, Rng{});
    return std::pair(static_cast<double>(held), static_cast<double>(traffic.bytes()));
  };
  const auto [wide, wide_traffic] = costs(Precision::tf32);
  const auto [narrow, narrow_traffic] = costs(Precision::bf16);
  RecordProperty("held", fmt::format("{} to {} bytes", wide, narrow));
  RecordProperty("traffic", fmt::format("{} to {} bytes", wide_traffic, narrow_traffic));
  EXPECT_LT(narrow, 0.65 * wide);
  EXPECT_LT(narrow_traffic, 0.65 * wide_traffic);
}

TEST_P(FastProductsInNetworks, GradientsHaveThePrecisionOfTheForwardPass) {
  const Var x(there(normal({2, 6, 6, 8}, "x")), true), w(there(normal({8, 3, 3, 8}, "w")), true);
  const Var y = [&] {
    const PrecisionScope scope(Precision::bf16);
    return conv2d(x, w, {}, {.padding = {1, 1}});
  }();
  EXPECT_EQ(product_precision(), Precision::portable);
  EXPECT_EQ(y.dtype(), DType::bf16);
  Precisions recorder;
  {
    const RecordScope recording(recorder);
    backward(sum(y * y));
  }
  EXPECT_EQ(recorder.seen(), (std::set<std::string>{"conv2d_grad_filter 2", "conv2d_grad_input 2"}));
  EXPECT_EQ(w.grad().dtype(), DType::f32);
  EXPECT_EQ(x.grad().dtype(), DType::f32);
}

// Values between products are bfloat16; sums over them and addends to float32 values are not. Gradients have the types
// of their values, whichever function computes them.
TEST_P(FastProductsInNetworks, TypesBetweenProducts) {
  const Var x(there(normal({4, 6, 8}, "x")), true), w(there(normal({8, 8}, "w")), true),
      bias(there(normal({8}, "bias")), true);
  const PrecisionScope scope(Precision::bf16);
  const Var h = linear(layer_norm(x, {}, {}), w, bias), branch = gelu(h) * 0.5 + h;
  EXPECT_EQ(h.dtype(), DType::bf16);
  EXPECT_EQ(branch.dtype(), DType::bf16);
  const Var y = x + dropout(branch, 0.2, Rng{.seed = 1});
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_EQ(sum(h).dtype(), DType::f32);
  EXPECT_EQ(group_norm(h, bias, bias, 2).dtype(), DType::bf16);
  EXPECT_EQ(softmax(h).dtype(), DType::f32);
  EXPECT_EQ(max(h, -1, false).dtype(), DType::f32);
  EXPECT_EQ(maximum(h, x).dtype(), DType::f32);
  EXPECT_EQ(concat({h, branch}, 0).dtype(), DType::bf16);
  EXPECT_EQ(concat({h, x}, 0).dtype(), DType::f32);
  backward(sum(y) + sum(softmax(h) * maximum(h, x)) + sum(max(h, -1, false)) + sum(group_norm(h, bias, bias, 2)) +
           sum(concat({h, x}, 0)) + sum(concat({h, branch}, 0)) + mean(matmul(h, transpose(branch, 1, 2))) +
           mse_loss(h, x));
  for (const Var& leaf : {x, w, bias}) {
    EXPECT_EQ(leaf.grad().dtype(), DType::f32);
    const Tensor g = leaf.grad().to(Device{});
    for (const float value : g.to_contiguous().span<float>()) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_P(FastProductsInNetworks, MixturesOfTargetsWithinATolerance) {
  const Var x(there(normal({3, 8}, "x")), true), w(there(normal({5, 8}, "w")), true);
  const Targets mixed(Tensor::from<int64_t>(std::vector<int64_t>{0, 1, 4}, {3}),
                      Tensor::from<int64_t>(std::vector<int64_t>{2, 1, 3}, {3}),
                      Tensor::from<float>(std::vector<float>{0.7f, 0.4f, 0.5f}, {3}));
  const auto loss_of = [&](Precision precision) {
    const PrecisionScope scope(precision);
    const Var loss = cross_entropy(linear(x, w), mixed);
    backward(loss);
    EXPECT_EQ(loss.dtype(), DType::f32);
    return std::pair(loss.value().to(Device{}).item(), w.grad());
  };
  const auto [fast, fast_gradient] = loss_of(Precision::bf16);
  const auto [portable, gradient] = loss_of(Precision::portable);
  EXPECT_NEAR(fast, portable, 0.02 * portable);  // rounded to 8 bits, up to 0.4 % each
  expect_close("gradient", fast_gradient, gradient.to(Device{}), 0.02);
}

// Portable products among fast ones accept their results.
TEST_P(FastProductsInNetworks, LargeHeadsAreWidened) {
  const Var x(there(normal({1, 3, 8}, "x")), true), w(there(normal({3 * 144, 8}, "w")), true);
  const PrecisionScope scope(Precision::bf16);
  const Var qkv = reshape(linear(x, w), {1, 3, 3, 1, 144}), o = self_attention(qkv);
  EXPECT_EQ(o.dtype(), DType::f32);
  backward(sum(o * o));
  EXPECT_EQ(w.grad().dtype(), DType::f32);
}

TEST_P(FastProductsInNetworks, DepthwiseConvolutionsArePortable) {
  const Var x(there(normal({2, 6, 6, 8}, "x")), true), w(there(normal({8, 3, 3, 1}, "w")), true);
  Precisions recorder;
  {
    const RecordScope recording(recorder);
    const PrecisionScope scope(Precision::bf16);
    backward(sum(conv2d(relu(cast(x, DType::bf16)), w, {}, {.padding = {1, 1}, .groups = 8})));
  }
  EXPECT_EQ(recorder.seen(), (std::set<std::string>{"conv2d 0", "conv2d_grad_filter 0", "conv2d_grad_input 0"}));
}

}  // namespace
}  // namespace elinvar::test
