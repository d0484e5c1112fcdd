// Jobs whose parameters are divided among workers (ZeRO-3): the ledger of one worker, with any members.
#include "tests/jobs/divided_runs.h"

namespace elinvar {
namespace {

using test::DividedNetwork;
using test::Division;
using test::every_division;

class ParameterDivisions : public test::DividedRuns, public testing::WithParamInterface<DividedNetwork> {
 protected:
  void SetUp() override { folder_.write("job.toml", GetParam().text()); }
};
INSTANTIATE_TEST_SUITE_P(, ParameterDivisions, testing::ValuesIn(test::kDividedNetworks),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(ParameterDivisions, HaveTheLedgerOfOneWorker) {
  const std::string alone = trained_result("alone", {});
  const auto tp = [&](int most) { return std::min(most, GetParam().shards); };
  std::vector<Division> divisions = {{.dp = 2, .tp = 1, .zero = 3, .copies = 1},
                                     {.dp = 3, .tp = 1, .zero = 3},
                                     {.tp = tp(2), .zero = 3, .copies = 1},
                                     {.dp = 2, .tp = 1, .pp = 2, .zero = 3},
                                     {.tp = tp(2), .pp = 2, .zero = 3, .copies = 1}};
  if (!every_division()) divisions = {divisions[static_cast<size_t>(GetParam().number) % 4], divisions[4]};
  for (const Division& division : divisions)
    EXPECT_EQ(trained_result(division.name(), division.complete()), alone) << division.name();
}

// A worker dies at each point of a step. With two copies nothing is lost; with one all go back to a checkpoint.
TEST_P(ParameterDivisions, SurviveDeaths) {
  const std::string alone = trained_result("alone", {});
  int step = 3;
  for (const char* point : {"forward", "contribute", "part", "trailer", "update"}) {
    if (!every_division() && (step + GetParam().number) % 3 != 0) {
      ++step;
      continue;
    }
    const Division division{.dp = 2, .tp = 1, .pp = 1 + step % 2, .zero = 3, .copies = 1 + step / 2 % 2};
    const std::string chaos = fmt::format("kill:worker=2,step={},at={}", step++, point);
    EXPECT_EQ(trained_result(division.name() + point, division.options({"--chaos", chaos})), alone) << chaos;
  }
}

}  // namespace
}  // namespace elinvar
