// Networks in virtual shards (NUMERICS.md, rules 24 to 27): the same function as without shards, and the same bits
// however shards are divided among processes.
#include "autograd/shards.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "autograd/precision.h"
#include "models/build.h"
#include "nn/clip.h"
#include "nn/micro_batch.h"
#include "nn/optimizer.h"
#include "tensor/isa.h"
#include "tensor/reduction_tree.h"
#include "tensor/stream.h"
#include "tests/models/hashed_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::same_bits;
using SettingsOf = std::map<std::string, Value>;

const InputInfo kSequences{.sample = {12}, .classes = 53, .dtype = DType::i32};

std::unique_ptr<Network> network_in(int shards, const std::string& kind, SettingsOf settings) {
  if (shards > 0) settings["virtual_shards"] = int64_t{shards};
  return build(elinvar::spec(kind, std::move(settings)), kSequences, 1);
}

SettingsOf eight_heads(const std::string& kind, int64_t layers) {
  SettingsOf settings = {{"layers", layers}, {"heads", int64_t{8}}, {"channels", int64_t{64}}, {"dropout", 0.1}};
  if (kind == "llama")
    settings["heads"] = int64_t{16}, settings["kv_heads"] = int64_t{8}, settings["hidden"] = int64_t{45};
  return settings;
}

Tensor some_input() { return integers<int32_t>("input", {3, 12}, 53); }
Tensor some_target() {
  Tensor target = integers<int64_t>("target", {3, 12}, 53);
  target.data<int64_t>()[5] = -100;
  return target;
}

const CrossEntropyOptions kSmoothed{.label_smoothing = 0.1};

MicroBatchResult gradient_of(Network& network, bool recompute = false) {
  return micro_batch_gradient(network, some_input(), some_target(), kSmoothed, {.seed = 1}, recompute);
}

StateDict gradients_of_wholes(const Network& network, const std::vector<Tensor>& gradients) {
  Parameters holder;
  for (const Parameter& p : network.parameters.list) {
    holder.list.push_back(p);
    holder.list.back().var = Var(gradients[holder.list.size() - 1]);
  }
  return holder.whole_state();
}

// Returns the largest difference over the largest magnitude in b; infinity if a difference is NaN.
double largest_difference(const Tensor& a, const Tensor& b) {
  double worst = 0, largest = 1e-30;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double difference = std::abs(double{a.data<float>()[i]} - b.data<float>()[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
    largest = std::max(largest, std::abs(double{b.data<float>()[i]}));
  }
  return worst / largest;
}

class ShardedNetworks : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, ShardedNetworks, testing::Values("gpt", "llama"),
                         [](const auto& kind) { return kind.param; });

// Only the order of float32 sums differs. The loss is a sum of 35 positive terms, so it differs by a few units of 2^-24
// (6e-8): 1e-6 is some 16 of them. A gradient gets a few such differences from each product on its way through two
// blocks, with cancellation; 1e-5 of its largest element is some 160.
TEST_P(ShardedNetworks, HaveTheInitialValuesAndNearlyTheGradientsOfTheWhole) {
  const auto whole = network_in(0, GetParam(), eight_heads(GetParam(), 2));
  const MicroBatchResult expected = gradient_of(*whole);
  const StateDict wanted = gradients_of_wholes(*whole, expected.gradients);
  for (const int shards : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(shards);
    const auto network = network_in(shards, GetParam(), eight_heads(GetParam(), 2));
    EXPECT_EQ(digest(network->parameters.whole_state()), digest(whole->parameters.state()));
    const MicroBatchResult found = gradient_of(*network);
    EXPECT_NEAR(found.loss_sum, expected.loss_sum, 1e-6 * expected.loss_sum);
    EXPECT_EQ(found.count, expected.count);
    EXPECT_EQ(found.correct, expected.correct);
    const StateDict gradients = gradients_of_wholes(*network, found.gradients);
    ASSERT_EQ(gradients.size(), wanted.size());
    for (const auto& [name, gradient] : gradients) {
      // Adding a constant to all keys of a head changes no softmax, so the gradient of their bias is noise.
      const bool noise = name.ends_with("c_attn.bias");
      EXPECT_LE(largest_difference(gradient, wanted.at(name)), noise ? 1e-4 : 1e-5) << name;
      EXPECT_TRUE(shards > 1 || same_bits(gradient, wanted.at(name))) << name;
    }
  }
}

TEST_P(ShardedNetworks, RecomputeTheSameBits) {
  const auto network = network_in(3, GetParam(), eight_heads(GetParam(), 2));
  const MicroBatchResult once = gradient_of(*network), twice = gradient_of(*network, /*recompute=*/true);
  EXPECT_EQ(once.loss_sum, twice.loss_sum);
  for (size_t i = 0; i < once.gradients.size(); ++i) EXPECT_TRUE(same_bits(once.gradients[i], twice.gradients[i]));
}

// What threads that stand for processes send each other: the roots of the maximal nodes that each has reduced.
struct Post {
  explicit Post(size_t members) : sent(members), barrier(static_cast<std::ptrdiff_t>(members)) {}
  std::vector<std::vector<Subtree>> sent;
  std::barrier<> barrier;
};

class PostedShards : public ShardGroup {
 public:
  PostedShards(Post& post, size_t member, ShardRange range) : post_(post), member_(member), range_(range) {}

  ShardRange own(int) const override { return range_; }
  Tensor sum(std::vector<Tensor> values, int count) override {
    TreeReducer own(count);
    for (int s = range_.begin; s < range_.end; ++s)
      own.add(s, {std::move(values[static_cast<size_t>(s - range_.begin)])});
    TreeReducer all(count);
    for (Subtree& subtree : exchange(own.subtrees())) all.add(std::move(subtree));
    return all.take_root()[0];
  }
  std::vector<Tensor> gather(std::vector<Tensor> values, const std::vector<Shape>&) override {
    std::vector<Subtree> leaves;
    for (Tensor& value : values) leaves.push_back({0, 0, {std::move(value)}});
    std::vector<Tensor> all;
    for (Subtree& leaf : exchange(leaves)) all.push_back(std::move(leaf.values[0]));
    return all;
  }

 private:
  std::vector<Subtree> exchange(const std::vector<Subtree>& own) {
    post_.sent[member_] = own;
    post_.barrier.arrive_and_wait();
    std::vector<Subtree> all;
    for (const std::vector<Subtree>& of_member : post_.sent)
      for (const Subtree& subtree : of_member) all.push_back({subtree.begin, subtree.end, {subtree.values[0].clone()}});
    post_.barrier.arrive_and_wait();
    return all;
  }

  Post& post_;
  size_t member_;
  ShardRange range_;
};

// A group that a process may not have: it computes nothing here.
class NoShards : public ShardGroup {
 public:
  ShardRange own(int) const override { return {0, 0}; }
  Tensor sum(std::vector<Tensor>, int) override { return {}; }
  std::vector<Tensor> gather(std::vector<Tensor>, const std::vector<Shape>&) override { return {}; }
};

// A group that loses what it should gather.
class LossyShards : public NoShards {
 public:
  ShardRange own(int count) const override { return {0, count}; }
};

TEST(ShardGroups, WithoutShardsOrValuesAreRefused) {
  NoShards none;
  const Shards here{.count = 2, .group = &none};
  const std::string message = "[shards] a group must compute at least one of 2 shards here";
  EXPECT_EQ(test::message_of<UsageError>([&] { copy_to_shards(Tensor::zeros({2}), here); }), message);
  EXPECT_EQ(test::message_of<UsageError>([&] { reduce_from_shards({}, here); }), message);
  EXPECT_EQ(test::message_of<UsageError>([&] { gather_from_shards({}, 0, {1, 1}, here); }), message);
  LossyShards lossy;
  const Var part = Tensor::zeros({3, 4});
  EXPECT_EQ(test::message_of<UsageError>([&] {
              cross_entropy({.parts = {part, part}, .shards = {.count = 2, .group = &lossy}, .classes = 8},
                            Tensor::zeros({3}, DType::i64));
            }),
            "[cross_entropy] numbers of 2 shards expected, got 0");
}

struct LossAndGradients {
  Tensor loss;
  std::vector<Tensor> gradients;  // undefined for shards of others
};

LossAndGradients computed_with(Network& network, ShardGroup& group, bool recompute, Precision precision) {
  const PrecisionScope products(precision);
  Context context{.training = true,
                  .rng = {.seed = 1},
                  .statistics = {},
                  .recompute = recompute,
                  .cache = nullptr,
                  .group = &group};
  const Var loss = cross_entropy(network.sharded_logits(some_input(), context), some_target(), kSmoothed).loss;
  backward(loss);
  LossAndGradients result{loss.value(), {}};
  for (const Parameter& p : network.parameters.list) result.gradients.push_back(p.var.grad());
  return result;
}

// Cuts the shards before each s whose bit s - 1 is set.
std::vector<ShardRange> ranges_of(int shards, unsigned cuts) {
  std::vector<ShardRange> ranges;
  int begin = 0;
  for (int s = 1; s <= shards; ++s)
    if (s == shards || (cuts >> (s - 1) & 1u)) ranges.push_back({std::exchange(begin, s), s});
  return ranges;
}

struct Divided {
  std::string name;
  std::function<std::unique_ptr<Network>(int shards)> make;
  std::vector<int> shards;
  bool recompute = false;
  Precision precision = Precision::portable;
};

// Prints the name in test reports.
void PrintTo(const Divided& divided, std::ostream* out) { *out << divided.name; }

// An embedding, attention, and linear layers whose outputs, at last the logits, are joined.
std::unique_ptr<Network> layers_in(int shards) {
  const auto layer = [](const std::string& kind, SettingsOf settings) {
    return elinvar::spec(kind, std::move(settings));
  };
  Spec all = layer("layers", {{"virtual_shards", int64_t{shards}}});
  all.lists["layer"] = {
      layer("embedding", {{"channels", int64_t{32}}}), layer("attention", {{"heads", int64_t{8}}, {"rotary", true}}),
      layer("linear", {{"out", int64_t{24}}}), layer("relu", {}), layer("linear", {{"out", kSequences.classes}})};
  return build(all, kSequences, 1);
}

std::unique_ptr<Network> experts_in(int shards, const std::string& kind) {
  SettingsOf settings = eight_heads(kind, 1);
  settings["experts"] = int64_t{5}, settings["capacity_factor"] = 1.0;
  return network_in(shards, kind, settings);
}

std::vector<Divided> divided_networks() {
  const auto one_block = [](const std::string& kind) {
    return [kind](int shards) { return network_in(shards, kind, eight_heads(kind, 1)); };
  };
  const auto experts_of = [](const std::string& kind) {
    return [kind](int shards) { return experts_in(shards, kind); };
  };
  return {{"gpt", one_block("gpt"), {2, 3, 5, 8}},
          {"llama", one_block("llama"), {2, 3, 5, 8}},
          {"layers", layers_in, {2, 3, 5}},
          {"gpt_experts", experts_of("gpt"), {2, 4}, /*recompute=*/true},
          {"llama_experts", experts_of("llama"), {3}},
          {"gpt_recomputed", one_block("gpt"), {3, 5}, /*recompute=*/true},
          {"gpt_exact", one_block("gpt"), {2, 5}, false, Precision::exact},
          {"llama_exact", one_block("llama"), {3}, false, Precision::exact},
          {"layers_exact", layers_in, {3}, false, Precision::exact}};
}

class DividedShards : public testing::TestWithParam<Divided> {};
INSTANTIATE_TEST_SUITE_P(, DividedShards, testing::ValuesIn(divided_networks()),
                         [](const auto& divided) { return divided.param.name; });

TEST_P(DividedShards, HaveTheSameBitsInEachDivision) {
  const auto& [name, make, numbers, recompute, precision] = GetParam();
  for (const int shards : numbers) {
    const LossAndGradients expected = computed_with(*make(shards), local_shards(), recompute, precision);
    for (unsigned cuts = 0; cuts < 1u << (shards - 1); ++cuts) {
      const std::vector<ShardRange> ranges = ranges_of(shards, cuts);
      Post post(ranges.size());
      std::vector<LossAndGradients> found(ranges.size());
      {
        std::vector<std::jthread> threads;
        for (size_t m = 0; m < ranges.size(); ++m)
          threads.emplace_back([&, m] {
            CpuStream stream(1);
            const StreamScope scope(stream);
            PostedShards group(post, m, ranges[m]);
            found[m] = computed_with(*GetParam().make(shards), group, GetParam().recompute, GetParam().precision);
          });
      }
      const std::vector<Parameter> parameters = make(shards)->parameters.list;
      for (size_t m = 0; m < ranges.size(); ++m) {
        EXPECT_TRUE(same_bits(found[m].loss, expected.loss)) << shards << " shards, cuts " << cuts;
        for (size_t i = 0; i < parameters.size(); ++i) {
          const Parameter& p = parameters[i];
          const bool own = p.cut.shards == 1 || (p.shard >= ranges[m].begin && p.shard < ranges[m].end);
          ASSERT_EQ(found[m].gradients[i].defined(), own) << p.name;
          EXPECT_TRUE(!own || same_bits(found[m].gradients[i], expected.gradients[i]))
              << p.name << ", " << shards << " shards, cuts " << cuts;
        }
      }
    }
  }
}

// Trains for four steps and returns the digest of the parameters.
std::string trained(Network& network, const OptimizerConfig& config) {
  Parameters& parameters = network.parameters;
  exempt_from_decay(parameters, std::vector<std::string>{"vectors"});
  const auto optimizer = make_optimizer(config, parameters);
  for (int64_t step = 0; step < 4; ++step) {
    const MicroBatchResult result = micro_batch_gradient(network, some_input(), some_target(), kSmoothed,
                                                         {.seed = 1, .step = static_cast<uint32_t>(step)});
    optimizer->step(parameters, result.gradients, config.lr, step,
                    clip_by_global_norm(result.gradients, config.clip_norm).scale);
  }
  return digest(parameters.state()).hex();
}

void expect_trained(const std::string& expected, int shards, const std::string& kind, const SettingsOf& settings,
                    const OptimizerConfig& config) {
  const Isa before = current_isa();
  for (const Isa isa : available_isas())
    for (const int threads : {1, 3}) {
      set_isa(isa);
      CpuStream stream(threads);
      const StreamScope scope(stream);
      EXPECT_EQ(trained(*network_in(shards, kind, settings), config), expected) << name_of(isa) << ", " << threads;
    }
  set_isa(before);
}

TEST(ShardedTraining, OfAGptHasKnownBits) {
  const SettingsOf settings = {
      {"layers", int64_t{2}}, {"heads", int64_t{6}}, {"channels", int64_t{48}}, {"dropout", 0.1}};
  expect_trained("8886a1344c7e258aa10224abb492a3cf", 4, "gpt", settings,
                 {.kind = "adamw", .lr = 3e-3, .weight_decay = 0.1, .clip_norm = 1.0});
}

TEST(ShardedTraining, OfALlamaHasKnownBits) {
  const SettingsOf settings = {{"layers", int64_t{2}},    {"heads", int64_t{8}},   {"kv_heads", int64_t{4}},
                               {"channels", int64_t{48}}, {"hidden", int64_t{50}}, {"tied_head", true},
                               {"qkv_bias", true}};
  expect_trained("eb12e81be779a495eaa007658a6e4ff6", 3, "llama", settings,
                 {.kind = "lamb", .lr = 3e-3, .weight_decay = 0.1, .clip_norm = 1.0});
}

}  // namespace
}  // namespace elinvar
