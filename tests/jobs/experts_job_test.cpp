// Jobs with a mixture of experts: the ledger of one worker in any arrangement, also where experts are in different
// processes.
#include "tests/jobs/divided_runs.h"

namespace elinvar {
namespace {

using test::Division;

class ExpertsJob : public test::DividedRuns {
 protected:
  // `model` is the [model] table but for its sizes.
  void write_job(const std::string& model) {
    folder_.write("job.toml", R"([run]
steps = 6
batch_size = 6
virtual_ranks = 3
eval_every = 3
checkpoint_every = 3
state_digest_every = 2
recompute = true
[data]
kind = "synthetic_text"
size = 40
tokens = "character"
context = 8
[optimizer]
kind = "adamw"
lr = 0.01
clip_norm = 0.5
[model]
layers = 2
heads = 2
channels = 16
)" + model);
  }

  void expect_ledger_of_one_worker(const std::string& alone) {
    for (const Division& division :
         {Division{.dp = 2, .tp = 1, .pp = 2, .zero = 3}, Division{.dp = 1, .tp = 2, .pp = 2, .zero = 0}})
      EXPECT_EQ(trained_result(division.name(), division.complete()), alone) << division.name();
    EXPECT_EQ(trained_result("emulated", {"--device", "emulated", "--set", "run.cuda_graphs=true"}), alone);
  }
};

TEST_F(ExpertsJob, HasTheLedgerOfOneWorker) {
  write_job("kind = \"gpt\"\nexperts = 3\ncapacity_factor = 1.0\nvirtual_shards = 2\n");
  const std::string alone = trained_result("alone", {});
  EXPECT_NE(alone.find("\"validation_expert_choices_dropped\""), std::string::npos) << alone;
  expect_ledger_of_one_worker(alone);
  EXPECT_EQ(trained_result("not_recomputed", {"--set", "run.recompute=false"}), alone);
  EXPECT_EQ(trained_result("dies", {"--workers", "2", "--chaos", "kill:worker=2,step=3,at=forward"}), alone);
  EXPECT_NE(trained_result("unbalanced", {"--set", "model.balance_weight=0"}), alone);
}

TEST_F(ExpertsJob, OfALlamaHasTheLedgerOfOneWorker) {
  write_job("kind = \"llama\"\nexperts = 3\nexpert_every = 2\nvirtual_shards = 2\n");
  expect_ledger_of_one_worker(trained_result("alone", {}));
}

TEST_F(ExpertsJob, HasNoClassElsewhere) {
  folder_.write("job.toml", R"([run]
steps = 1
batch_size = 2
[model]
kind = "gpt"
layers = 1
heads = 2
channels = 16
experts = 4
[data]
kind = "synthetic_text"
tokens = "byte"
context = 8
)");
  trained_result("run", {});
  const test::Ended ended = train({"export", folder_ / "run", folder_ / "out/"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("Hugging Face's transformers have no GPT-2 with experts; a path such as model.safetensors "
                           "writes its weights alone"),
            std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace elinvar
