// Kinds of data, networks and optimisers that a program registers, in one process.
#include <gtest/gtest.h>

#include "data/tensor_dataset.h"
#include "models/build.h"
#include "models/kinds.h"
#include "nn/linear.h"
#include "nn/optimizer.h"
#include "tests/support/temporary_folder.h"
#include "tools/config/config.h"
#include "tools/training/elastic_job.h"
#include "tools/training/training.h"

namespace elinvar {
namespace {

// Returns points with as many features as `weights`, each with its index as its label.
std::unique_ptr<Dataset> open_counted(Settings& s, Split) {
  const int64_t points = s.integer("points", 6);
  const std::vector<double> weights = s.reals("weights", {1, 2.5}, 0, 10);
  const std::vector<std::string> names = s.texts("names", {"a", "b"});
  const auto features = static_cast<int64_t>(weights.size());
  Tensor inputs = Tensor::empty({points, features}), targets = Tensor::empty({points}, DType::i64);
  for (int64_t i = 0; i < points; ++i) {
    for (int64_t j = 0; j < features; ++j)
      inputs.data<float>()[i * features + j] =
          static_cast<float>(i) * static_cast<float>(weights[static_cast<size_t>(j)]);
    targets.data<int64_t>()[i] = i % static_cast<int64_t>(names.size());
  }
  return tensor_dataset(
      {.inputs = inputs, .targets = targets, .classes = static_cast<int64_t>(names.size()), .class_names = names});
}

struct Straight final : Network {
  Straight(Settings& s, const InputInfo& input, uint64_t seed) {
    const Scope scope(parameters, seed);
    out = Linear(scope / s.text("name", "out"), input.sample.numel(), input.classes);
    if (s.boolean("twice", false)) Linear(scope / "out", 1, 1);
  }
  Var forward(const Tensor& x, Context&) const override { return out(Var(x)); }
  Linear out;
};

// Changes no parameters.
struct Idle final : Optimizer {
  void step(Parameters&, std::span<const Tensor>, double, int64_t, double) override {}
  StateDict state() const override { return {}; }
};

class RegisteredKinds : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    register_dataset({"counted", open_counted});
    register_dataset({"nothing", [](Settings&, Split) { return std::unique_ptr<Dataset>(); }});
    register_model({"straight", [](Settings& s, const InputInfo& input, uint64_t seed) {
                      return std::make_unique<Straight>(s, input, seed);
                    }});
    register_optimizer({"idle", [](Settings& s, const Parameters&) {
                          (void)s.real("patience", 1, 0, 9);
                          return std::make_unique<Idle>();
                        }});
  }

  const std::string text_ = R"([run]
steps = 3
batch_size = 4
[data]
kind = "counted"
shuffle = false
weights = [1, 0.5, 2]
[model]
kind = "straight"
[optimizer]
kind = "idle"
lr = 0.5
clip_norm = 3
)";
  Config config(const std::vector<std::string>& overrides = {}) const {
    return parse_config(text_, "folder/own.toml", overrides);
  }
  std::string error_of(const std::vector<std::string>& overrides) const {
    return test::message_of<UsageError>([&] { Training(config(overrides), Device{}); });
  }
};

TEST_F(RegisteredKinds, TakeTheirSettingsFromTheirTables) {
  Training training(config(), Device{});
  EXPECT_EQ(training.setup.data->input_shape(), (Shape{3}));
  EXPECT_EQ(training.setup.data->classes(), 2);
  EXPECT_EQ(training.setup.data->class_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(training.setup.network->parameters.list.at(0).name, "out.weight");
  EXPECT_EQ(training.config().optimizer.lr, 0.5);
  EXPECT_EQ(training.config().optimizer.clip_norm, 3);
  EXPECT_FALSE(training.config().reader.shuffle);
  const Batch batch = training.loader.batch(0, 0);
  EXPECT_EQ(std::vector<float>(batch.input.data<float>(), batch.input.data<float>() + 6),
            (std::vector<float>{0, 0, 0, 1, 0.5, 2}));
}

// A configuration that is written has every default, and reads back as the same.
TEST_F(RegisteredKinds, DefaultsAreFilledIn) {
  const Training training(config(), Device{});
  const std::string written = to_toml(training.config());
  for (const char* line : {"points = 6\n", "weights = [1.0, 0.5, 2.0]\n", "names = [\"a\", \"b\"]\n",
                           "patience = 1.0\n", "name = \"out\"\n", "twice = false\n"})
    EXPECT_NE(written.find(line), std::string::npos) << line << written;
  for (const char* line : {"image_size", "context", "beta1", "weight_decay"})
    EXPECT_EQ(written.find(line), std::string::npos) << line << written;
  const Config again = parse_config(written, "own.toml");
  EXPECT_EQ(to_toml(again), written);
  EXPECT_EQ(digest(again), digest(training.config()));
  EXPECT_TRUE(differences(again, training.config()).empty());
  EXPECT_EQ(to_toml(Training(again, Device{}).config()), written);
}

TEST_F(RegisteredKinds, SettingsDecideTheDigestsOfARun) {
  const Training training(config(), Device{});
  for (const char* setting :
       {"data.points=7", "data.weights=[1, 0.5, 3]", "model.name=\"last\"", "optimizer.patience=2"}) {
    const Training other(config({setting}), Device{});
    EXPECT_NE(digest(other.config()), digest(training.config())) << setting;
    EXPECT_EQ(differences(training.config(), other.config()).size(), 1u) << setting;
  }
  EXPECT_EQ(digest(*training.setup.data), digest(*Training(config(), Device{}).setup.data));
  EXPECT_NE(digest(*training.setup.data), digest(*Training(config({"data.points=7"}), Device{}).setup.data));
}

TEST_F(RegisteredKinds, ErrorsNameTheLineTheKeyAndTheNearestSpelling) {
  EXPECT_EQ(error_of({"data.point=3"}),
            "--set data.point: data.point is no setting of 'counted'; did you mean 'points'?");
  EXPECT_EQ(error_of({"data.points=0"}), "--set data.points: data.points must lie between 1 and 16777216, got 0");
  EXPECT_EQ(error_of({"data.weights=[1, 11]"}),
            "--set data.weights: data.weights must hold numbers from 0 to 10, got 11");
  EXPECT_EQ(error_of({"data.weights=3"}), "--set data.weights: data.weights must be a list of numbers, got an integer");
  EXPECT_EQ(error_of({"data.names=[1]"}),
            "--set data.names: data.names must be a list of strings, got a list of integers");
  EXPECT_EQ(
      error_of({"data.names=[1, \"x\"]"}),
      "--set data.names: data.names must be a number, text, true or false, an array of numbers or of texts, or an "
      "array of tables");
  EXPECT_EQ(error_of({"data.threads=-1"}), "--set data.threads: data.threads must lie between 0 and 1024, got -1");
  EXPECT_EQ(error_of({"data.kind=\"countd\""}),
            "--set data.kind: data.kind does not know 'countd'; did you mean 'counted'?");
  EXPECT_EQ(error_of({"data.kind=\"nothing\"", "data.weights=[]"}),
            "--set data.weights: data.weights is no setting of 'nothing'");
  EXPECT_EQ(error_of({"model.twice=true"}),
            "folder/own.toml:9: model.kind = 'straight': there is a parameter 'out.weight' already");
  EXPECT_EQ(error_of({"optimizer.patience=10"}),
            "--set optimizer.patience: optimizer.patience must lie between 0 and 9, got 10");
  EXPECT_EQ(error_of({"optimizer.beta1=0.5"}).find("--set optimizer.beta1: optimizer.beta1 is no setting of 'idle'"),
            0u);
  EXPECT_EQ(error_of({"optimizer.lr=-1"}), "--set optimizer.lr: optimizer.lr must be at least 0, got -1");
}

TEST_F(RegisteredKinds, NamesAreTakenOnce) {
  const auto dataset = [](const char* name) {
    return test::message_of<UsageError>([=] { register_dataset({name, open_counted}); });
  };
  EXPECT_EQ(dataset("counted"), "[data] there is a kind 'counted' already; choose another name");
  EXPECT_EQ(dataset("cifar10"), "[data] there is a kind 'cifar10' already; choose another name");
  EXPECT_EQ(dataset(""), "[data] a kind needs a name, got ''");
  EXPECT_EQ(test::message_of<UsageError>([] {
              register_model({"gpt", {}});
            }),
            "[model] there is a kind 'gpt' already; choose another name");
  EXPECT_EQ(test::message_of<UsageError>([] {
              register_optimizer({"sgd", {}});
            }),
            "[optimizer] there is a kind 'sgd' already; choose another name");
}

// The caller of the library must say how workers are started.
TEST_F(RegisteredKinds, AJobMustKnowHowToStartWorkers) {
  const test::TemporaryFolder folder;
  const JobOptions options{.config = folder.write("own.toml", text_), .run_dir = folder / "run"};
  EXPECT_EQ(test::message_of<UsageError>([&] { run(options); }),
            "this process cannot start workers: JobOptions::start_worker is empty");
}

TEST_F(RegisteredKinds, WhatAKindDoesNotMakeIsTold) {
  EXPECT_EQ(test::message_of<UsageError>([] { open_dataset({.kind = "nothing"}, Split::test); }),
            "[data] kind 'nothing' opened no data set for the split test");
}

}  // namespace
}  // namespace elinvar
