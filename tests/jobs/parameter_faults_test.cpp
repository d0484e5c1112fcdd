// Faults in jobs whose workers fetch parameters from each other in the middle of rank gradients (ZeRO-3).
#include "tests/jobs/division_faults.h"
#include "tests/support/environment.h"

namespace elinvar {
namespace {

using test::Division;
using test::every_fault;

struct ParameterOptimizer {
  const char *name, *text;
};

class ParameterFaults : public test::DivisionFaults, public testing::WithParamInterface<ParameterOptimizer> {
 protected:
  ParameterFaults() : DivisionFaults(GetParam().text) {}
};
INSTANTIATE_TEST_SUITE_P(, ParameterFaults,
                         testing::Values(ParameterOptimizer{"adamw", test::kTinyAdamW},
                                         ParameterOptimizer{"lamb", test::kTinyLamb}),
                         [](const auto& param) { return std::string(param.param.name); });

// ELINVAR_CHAOS and ELINVAR_CHAOS_SEED as in chaos_test.cpp.
TEST_P(ParameterFaults, RandomSchedulesEndAsTheUndisturbedRun) {
  const int64_t runs = test::from_environment("ELINVAR_CHAOS", every_fault() ? 60 : 2),
                first = test::from_environment("ELINVAR_CHAOS_SEED", GetParam().text == test::kTinyLamb ? 2 : 0);
  for (int64_t seed = first; seed < first + runs; ++seed) {
    const int pp = 1 + static_cast<int>(seed / 4 % 3), tp = 1 + static_cast<int>((seed + 1) % 2);
    const int replicas = 1 + static_cast<int>(seed / 2 % 2);
    const Division division{.dp = tp * pp > 3    ? 1
                                  : tp * pp == 1 ? 1 + replicas
                                                 : replicas,
                            .tp = tp,
                            .pp = pp,
                            .zero = 3,
                            .copies = 1 + static_cast<int>(seed / 3 % 2)};
    if (!endures_random_faults(seed, division, "fetch")) return;
  }
}

// The newcomer fetches while it gets the state of its buckets. The job holds while more than one worker is missing, so
// that each victim has others, however late the newcomers come. On a busy machine some member may be so slow that it is
// assigned no virtual rank, and fetches nothing from a victim, which then lives: another run has other measurements.
TEST_P(ParameterFaults, WhoDiesAfterItsFirstAnswerIsReplaced) {
  int number = GetParam().text == test::kTinyLamb ? 1 : 0;
  for (const Division& division : {Division{.dp = 3, .tp = 1, .zero = 3, .copies = 1},
                                   {.dp = 2, .tp = 2, .zero = 3},
                                   {.tp = 1, .pp = 3, .zero = 3, .copies = 1},
                                   {.tp = 2, .pp = 2, .zero = 3}}) {
    if (!every_fault() && number++ % 2 == 0) continue;
    const std::string chaos =
        "kill:worker=2,step=30,at=fetch;join:step=50;kill:worker=0,step=70,at=fetch;join:step=90;"
        "kill:worker=3,step=110,at=fetch";
    const Words least = {"--min-workers", std::to_string(division.workers() - 1)};
    size_t kills = 0;
    for (int run = 0; run < 8 && kills < 3 && !HasFailure(); ++run) {
      const std::string name = fmt::format("{}-{}", division.name(), run);
      EXPECT_EQ(run_through(name, options(division, chaos, least)), "") << name;
      kills = count(name, "kill");
    }
    EXPECT_EQ(kills, 3u) << division.name();
  }
}

}  // namespace
}  // namespace elinvar
