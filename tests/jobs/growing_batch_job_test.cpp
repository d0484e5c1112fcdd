// Jobs whose batch grows after epochs: the ledger of one worker, also if one of several dies.
#include "tests/jobs/divided_runs.h"

namespace elinvar {
namespace {

class GrowingBatch : public test::DividedRuns {};

TEST_F(GrowingBatch, IsAFunctionOfTheStep) {
  folder_.write("job.toml", R"([run]
epochs = 5
batch_size = 6
virtual_ranks = 3
grow_every = 2
batch_max = 20
eval_every = 8
checkpoint_every = 10
[model]
kind = "mlp"
hidden = [8]
[data]
kind = "synthetic"
size = 40
image_size = 4
classes = 3
[optimizer]
lr = 0.05
[schedule]
kind = "linear"
)");
  const std::string alone = trained_result("alone", {});
  // Batches of 6, 12 and 20 of 40 samples.
  constexpr size_t kSteps = 2 * 7 + 2 * 4 + 2;
  std::vector<double> rates;
  for (const std::string& line : test::lines_of(read_file(folder_ / "alone" / "metrics.jsonl")))
    if (const auto step = nlohmann::json::parse(line); step.contains("lr"))
      rates.push_back(step.at("lr").get<double>());
  ASSERT_EQ(rates.size(), kSteps);
  // The schedule counts samples in batches of the first size, of which an epoch has 7: the last step begins after 4
  // epochs and 20 samples.
  EXPECT_DOUBLE_EQ(rates.back(), 0.05 * (1 - (4 * 7 + 20 / 6) / 35.0));
  EXPECT_DOUBLE_EQ(rates[14], 0.05 * (1 - 14 / 35.0));
  EXPECT_EQ(trained_result("dies", {"--workers", "2", "--chaos", "kill:worker=2,step=16,at=forward"}), alone);
}

}  // namespace
}  // namespace elinvar
