// Jobs that predict numbers and labels from rows: several inputs, losses and metrics of their own, and the ledger of
// one worker in any arrangement.
#include "tests/jobs/divided_runs.h"

namespace elinvar {
namespace {

using test::Division;
using test::Ended;

constexpr const char* kRun = R"([run]
steps = 12
batch_size = 30
virtual_ranks = 3
eval_every = 5
checkpoint_every = 6
state_digest_every = 3
[optimizer]
kind = "adam"
lr = 0.01
)";

class TaskJob : public test::DividedRuns {
 protected:
  std::string last_validation(const std::string& name) const {
    std::string last;
    for (const std::string& line : test::lines_of(read_file(folder_ / name / "metrics.jsonl")))
      if (line.find("validation_loss") != std::string::npos) last = line;
    return last;
  }
};

TEST_F(TaskJob, ClicksHaveTheLedgerOfOneWorker) {
  folder_.write("job.toml", std::string(kRun) + R"([model]
kind = "dlrm"
[task]
kind = "binary"
positive_weight = 2.0
[data]
kind = "synthetic_table"
size = 310
features = 3
symbols = [9, 7, 5]
)");
  const std::string alone = trained_result("alone", {});
  const auto validation = nlohmann::json::parse(last_validation("alone"));
  EXPECT_GT(validation.at("validation_auc").get<double>(), 0.5);
  for (const Division& division :
       {Division{.dp = 2, .tp = 1, .pp = 2, .zero = 3}, Division{.dp = 2, .tp = 1, .zero = 1, .copies = 1}})
    EXPECT_EQ(trained_result(division.name(), division.complete()), alone) << division.name();
  EXPECT_EQ(trained_result("dies", {"--workers", "2", "--chaos", "kill:worker=2,step=4,at=forward"}), alone);
  EXPECT_EQ(trained_result("emulated", {"--device", "emulated", "--set", "run.cuda_graphs=true"}), alone);

  const Ended eval = train({"eval", folder_ / "alone", "--json"});
  const auto score = nlohmann::json::parse(eval.out);
  EXPECT_EQ(score.at("auc"), validation.at("validation_auc"));
  EXPECT_EQ(score.at("loss"), validation.at("validation_loss"));
  EXPECT_FALSE(score.contains("top5_accuracy"));
  EXPECT_NE(train({"plot", folder_ / "alone"}).out.find("auc by step"), std::string::npos);
}

TEST_F(TaskJob, NumbersFromAFileHaveNoAccuracy) {
  std::string rows = "height,kind,age\n";
  for (int i = 0; i < 120; ++i)
    rows += fmt::format("{},{},{}\n", i % 17, i % 3 == 0 ? "oak" : "ash", 3 * (i % 17) + i % 3);
  folder_.write("trees.csv", rows);
  folder_.write("job.toml", std::string(kRun) + fmt::format(R"([model]
kind = "deepfm"
[task]
kind = "regression"
[data]
kind = "table"
path = "{}"
target = ["age"]
numbers = ["height"]
categories = ["kind"]
)",
                                                            (folder_ / "trees.csv").string()));
  const std::string alone = trained_result("alone", {});
  EXPECT_EQ(alone.find("accuracy"), std::string::npos);
  EXPECT_NE(last_validation("alone").find("\"validation_rmse\""), std::string::npos);
  EXPECT_EQ(trained_result("two", {"--workers", "2"}), alone);
  const Ended resumed = train({"resume", folder_ / "alone", "--set", "task.loss=\"mae\""});
  EXPECT_EQ(resumed.code, 2);
  EXPECT_NE(resumed.err.find("task.loss"), std::string::npos) << resumed.err;
}

// Validation has another number of candidates than training.
TEST_F(TaskJob, ChoicesFromRatingsAreRanked) {
  std::string rows;
  for (int user = 0; user < 20; ++user)
    for (int k = 0; k < 6; ++k) rows += fmt::format("{}\t{}\t5\t{}\n", user, (user % 4 + 4 * k) % 40, k);
  folder_.write("u.data", rows);
  folder_.write("job.toml", std::string(kRun) + fmt::format(R"([model]
kind = "neumf"
factors = 4
layers = [8]
[task]
kind = "ranking"
at = 3
[data]
kind = "ratings"
path = "{}"
negatives = 3
candidates = 12
)",
                                                            folder_.path()));
  const std::string alone = trained_result("alone", {});
  EXPECT_EQ(alone.find("accuracy"), std::string::npos);
  const auto validation = nlohmann::json::parse(last_validation("alone"));
  EXPECT_GE(validation.at("validation_hit_rate").get<double>(), validation.at("validation_ndcg").get<double>());
  const Division cut{.dp = 2, .tp = 1, .pp = 2, .zero = 1};
  EXPECT_EQ(trained_result(cut.name(), cut.complete()), alone);
}

TEST_F(TaskJob, ANetworkHasSeveralHeads) {
  std::string rows = "x,y,class,size\n";
  for (int i = 0; i < 90; ++i) rows += fmt::format("{},{},{},{}\n", i % 7, i % 5, (i % 7 + i % 5) % 3, i % 7 * 0.5);
  folder_.write("things.csv", rows);
  folder_.write("job.toml", std::string(kRun) + fmt::format(R"([model]
kind = "mlp"
hidden = [16]
[task]
kind = "heads"
[[task.head]]
kind = "classification"
classes = 3
[[task.head]]
kind = "regression"
weight = 0.5
[data]
kind = "table"
path = "{}"
target = ["class", "size"]
numbers = ["x", "y"]
)",
                                                            (folder_ / "things.csv").string()));
  const std::string alone = trained_result("alone", {});
  const auto validation = nlohmann::json::parse(last_validation("alone"));
  for (const char* metric : {"validation_classification_accuracy", "validation_regression_r2"})
    EXPECT_TRUE(validation.contains(metric)) << metric;
  EXPECT_EQ(trained_result("two", {"--workers", "2"}), alone);
  EXPECT_EQ(train({"eval", folder_ / "alone"}).code, 0);
}

// The stage of the generator draws the tokens that the discriminator reads.
TEST_F(TaskJob, ReplacedTokensAreFoundInAnyArrangement) {
  folder_.write("job.toml", std::string(kRun) + R"([model]
kind = "electra"
layers = 2
heads = 4
channels = 16
embedding = 8
generator_heads = 2
generator_channels = 8
virtual_shards = 2
[task]
kind = "replaced_tokens"
[data]
kind = "synthetic_text"
size = 200
tokens = "byte"
context = 12
masking = 0.25
targets_as_input = true
)");
  const std::string alone = trained_result("alone", {});
  EXPECT_TRUE(nlohmann::json::parse(last_validation("alone")).contains("validation_replaced_f1"));
  for (const Division& division :
       {Division{.dp = 1, .tp = 2, .pp = 2, .zero = 3}, Division{.dp = 2, .tp = 1, .pp = 2, .zero = 1, .copies = 1}})
    EXPECT_EQ(trained_result(division.name(), division.complete()), alone) << division.name();
  EXPECT_EQ(trained_result("dies", {"--workers", "2", "--chaos", "kill:worker=2,step=4,at=forward"}), alone);
}

TEST_F(TaskJob, WhatDoesNotFitIsNamed) {
  const auto refusal = [&](const std::string& text) {
    folder_.write("job.toml", std::string(kRun) + text);
    const Ended ended = train({"check", folder_ / "job.toml"});
    EXPECT_EQ(ended.code, 2);
    return ended.err;
  };
  const std::string table = "[data]\nkind = \"synthetic_table\"\nsize = 100\n[model]\nkind = \"dlrm\"\n";
  EXPECT_NE(refusal(table).find("needs targets that are classes"), std::string::npos);
  const std::string misspelt = refusal(table + "[task]\nkind = \"binary\"\nfocal_gama = 2.0\n");
  EXPECT_NE(misspelt.find("task.focal_gama is no setting of 'binary'; did you mean 'focal_gamma'?"), std::string::npos)
      << misspelt;
  EXPECT_NE(misspelt.find("job.toml:"), std::string::npos);
  EXPECT_NE(refusal(table + "[task]\nfocal_gamma = 2.0\n").find("task.kind is missing"), std::string::npos);
}

}  // namespace
}  // namespace elinvar
