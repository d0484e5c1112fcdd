// Jobs that write texts from texts: the ledger of one worker in any arrangement.
#include "tests/jobs/divided_runs.h"

namespace elinvar {
namespace {

using test::Division;

class PairsJob : public test::DividedRuns {};

TEST_F(PairsJob, HasTheLedgerOfOneWorker) {
  std::string pairs;
  for (int i = 0; i < 60; ++i)
    pairs += fmt::format("{{\"n\": {}, \"words\": \"{} tens, {} ones\"}}\n", i, i / 10, i % 10);
  folder_.write("pairs.jsonl", pairs);
  folder_.write("job.toml", fmt::format(R"([run]
steps = 6
batch_size = 15
virtual_ranks = 3
eval_every = 3
checkpoint_every = 3
state_digest_every = 2
recompute = true
[model]
kind = "t5"
layers = 2
heads = 2
channels = 16
virtual_shards = 2
[data]
kind = "text_pairs"
path = "{}"
text = "n"
target = ["words"]
tokens = "character"
context = 4
target_context = 16
[optimizer]
kind = "adam"
lr = 0.01
)",
                                        (folder_ / "pairs.jsonl").string()));
  const std::string alone = trained_result("alone", {});
  EXPECT_NE(alone.find("\"validation_accuracy\""), std::string::npos);
  for (const Division& division :
       {Division{.dp = 2, .tp = 1, .pp = 2, .zero = 3}, Division{.dp = 1, .tp = 2, .pp = 2, .zero = 0}})
    EXPECT_EQ(trained_result(division.name(), division.complete()), alone) << division.name();
  EXPECT_EQ(trained_result("not_recomputed", {"--set", "run.recompute=false"}), alone);
  const test::Ended sampled = train({"sample", folder_ / "alone", "--prompt", "42", "--temperature", "0", "--json"});
  EXPECT_NE(sampled.out.find("\"prompt\":\"42\",\"text\":\""), std::string::npos) << sampled.out << sampled.err;
  EXPECT_NE(train({"predict", folder_ / "alone", "--text", "-"}).err.find("pairs of texts"), std::string::npos);
  EXPECT_EQ(trained_result("dies", {"--workers", "2", "--chaos", "kill:worker=2,step=3,at=forward"}), alone);
  EXPECT_EQ(trained_result("emulated", {"--device", "emulated", "--set", "run.cuda_graphs=true"}), alone);
}

TEST_F(PairsJob, IgnoredTargetsKeepTheirValue) {
  folder_.write("job.toml", R"([run]
steps = 1
batch_size = 4
[model]
kind = "t5"
[data]
kind = "synthetic_pairs"
context = 8
[loss]
ignore_index = 3
)");
  const test::Ended ended = train({"check", folder_ / "job.toml"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("loss.ignore_index must be -100 with pairs of texts, got 3"), std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace elinvar
