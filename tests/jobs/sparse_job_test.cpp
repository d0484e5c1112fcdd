// Jobs with sparse tables: the ledger of one worker with any number of them, through deaths, stages of a pipeline,
// resumption and on a GPU.
#include "tests/jobs/divided_runs.h"
#include "tests/jobs/table_job.h"

namespace elinvar {
namespace {

using test::Ended;

class SparseJob : public test::DividedRuns {
 protected:
  void SetUp() override {
    const std::string rowwise = "sparse_kind = \"rowwise_adagrad\"\nsparse_lr = 0.05\n";
    folder_.write("job.toml", test::sparse_table_job("900, 7, 500", rowwise));
  }
};

TEST_F(SparseJob, HasTheLedgerOfOneWorker) {
  const std::string alone = trained_result("alone", {});
  EXPECT_EQ(trained_result("three", {"--workers", "3"}), alone);
  EXPECT_EQ(trained_result("dies", {"--workers", "2", "--chaos", "kill:worker=2,step=4,at=forward"}), alone);
  EXPECT_EQ(trained_result("joins", {"--workers", "2", "--chaos", "kill:worker=1,step=5,at=update;join:step=3"}),
            alone);
  EXPECT_EQ(trained_result("stages", {"--arrangement", "pp=2", "--workers", "2"}), alone);
  EXPECT_EQ(trained_result("emulated", {"--device", "emulated", "--set", "run.cuda_graphs=true"}), alone);
  EXPECT_EQ(trained_result("offloaded", {"--offload", "file"}), alone);
  const Ended stopped = train({"run", folder_ / "job.toml", "--run-dir", folder_ / "resumed", "--until", "8"});
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  const Ended resumed = train({"resume", folder_ / "resumed"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(result("resumed"), alone);
}

// With the update of SGD, where rows without a gradient stay as they are.
TEST_F(SparseJob, HasTheStateOfDenseTables) {
  const auto final_digest = [&](const std::string& name, const Words& more) {
    trained(name, more);
    const auto lines = test::lines_of(ledger(name));
    return nlohmann::json::parse(lines.back()).at("state").get<std::string>();
  };
  const Words sgd = {"--set", "optimizer.kind=\"sgd\"",     "--set", "optimizer.momentum=0",
                     "--set", "optimizer.sparse_kind=\"\"", "--set", "optimizer.sparse_lr=0",
                     "--set", "optimizer.clip_norm=0"};
  Words dense = sgd;
  dense.insert(dense.end(), {"--set", "optimizer.sparse=[]"});
  EXPECT_EQ(final_digest("sparse", sgd), final_digest("dense", dense));
}

// Growing tables have what whole ones compute, and the same rows for the same categories through faults.
TEST_F(SparseJob, GrowingTablesHaveTheLedgerOfOneWorker) {
  const auto scores = [&](const std::string& name) {
    std::string text;
    for (const std::string& line : test::lines_of(read_file(folder_ / name / "metrics.jsonl")))
      if (const auto fields = nlohmann::json::parse(line); fields.contains("validation_loss"))
        text += fields.at("validation_loss").dump() + " ";
    return text;
  };
  const Words whole = {"--set", "model.rows=0"}, growing = {"--set", "model.rows=900"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), growing.begin(), growing.end());
    return more;
  };
  trained("whole", whole);
  const std::string alone = trained_result("alone", growing);
  EXPECT_EQ(scores("alone"), scores("whole"));
  EXPECT_EQ(trained_result("dies", with({"--workers", "2", "--chaos", "kill:worker=1,step=5,at=update;join:step=3"})),
            alone);
  EXPECT_EQ(trained_result("emulated", with({"--device", "emulated", "--set", "run.cuda_graphs=true"})), alone);
  Words stopped = {"run", folder_ / "job.toml", "--run-dir", folder_ / "resumed", "--until", "8"};
  stopped.insert(stopped.end(), growing.begin(), growing.end());
  EXPECT_EQ(train(stopped).code, 0);
  EXPECT_EQ(train({"resume", folder_ / "resumed"}).code, 0);
  EXPECT_EQ(result("resumed"), alone);
  const Ended full = train({"run", folder_ / "job.toml", "--run-dir", folder_ / "full", "--set", "model.rows=50"});
  EXPECT_EQ(full.code, 3);
  EXPECT_NE(full.err.find("the table needs more (model.rows)"), std::string::npos) << full.err;
}

// Of columns that have several categories, whether the table is sparse or not, and whether it grows.
TEST_F(SparseJob, BagsHaveTheLedgerOfOneWorker) {
  const Words dense = {"--set", "optimizer.sparse=[]",  "--set", "optimizer.sparse_kind=\"\"",
                       "--set", "optimizer.sparse_lr=0"};
  const std::vector<std::pair<std::string, Words>> tables = {
      {"sparse", {"--set", "model.bags=\"mean\""}}, {"growing", {"--set", "model.rows=1300"}}, {"dense", dense}};
  for (const auto& [table, settings] : tables) {
    const auto with = [&, &settings = settings](Words more) {
      more.insert(more.end(), settings.begin(), settings.end());
      more.insert(more.end(), {"--set", "data.most_ids=[40, 1, 3]"});
      return more;
    };
    const auto named = [&, &table = table](const char* name) { return table + "_" + name; };
    const std::string alone = trained_result(named("alone"), with({}));
    EXPECT_EQ(trained_result(named("dies"),
                             with({"--workers", "3", "--chaos", "kill:worker=2,step=4,at=forward;join:step=6"})),
              alone)
        << table;
    EXPECT_EQ(trained_result(named("emulated"), with({"--device", "emulated", "--set", "run.cuda_graphs=true"})), alone)
        << table;
    EXPECT_EQ(trained_result(named("stages"), with({"--arrangement", "pp=2", "--workers", "2"})), alone) << table;
    for (const char* stage : {"zero=1", "zero=3"})
      EXPECT_EQ(trained_result(named(stage), with({"--arrangement", stage, "--workers", "2"})), alone) << table;
  }
}

TEST_F(SparseJob, WhatCannotBeSparseIsRefused) {
  const auto refusal = [&](const Words& more) {
    Words words = {"run", folder_ / "job.toml", "--run-dir", folder_ / "refused"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = train(words);
    EXPECT_EQ(ended.code, 2) << ended.err;
    return ended.err;
  };
  EXPECT_NE(refusal({"--set", "optimizer.sparse=[\"top.0.weight\"]"}).find("which is not a table"), std::string::npos);
}

}  // namespace
}  // namespace elinvar
