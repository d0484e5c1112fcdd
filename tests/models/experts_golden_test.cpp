// Compares small GPTs with mixtures of experts with PyTorch in float64 (golden/make_experts.py).
#include <gtest/gtest.h>

#include "tests/models/golden_network.h"

namespace elinvar {
namespace {

void compare_experts(const char* name, const std::map<std::string, Value>& mixture) {
  const InputInfo info{.sample = {12}, .classes = 40, .dtype = DType::i32};
  std::map<std::string, Value> settings = {
      {"layers", int64_t{2}}, {"heads", int64_t{3}}, {"channels", int64_t{24}}, {"context", int64_t{16}}};
  settings.insert(mixture.begin(), mixture.end());
  const auto whole = build(spec("gpt", settings), info, 1);
  for (const int64_t shards : {1, 3}) {
    SCOPED_TRACE(shards);
    if (shards > 1) settings["virtual_shards"] = shards;
    const auto network = build(spec("gpt", settings), info, 1);
    compare_with_golden(name, *whole, *network, integers<int32_t>("input", {3, 12}, 40),
                        integers<int64_t>("target", {3, 12}, 40));
  }
}

TEST(ExpertsGolden, TwoOfFourExpertsInEachBlock) {
  compare_experts("gpt_experts",
                  {{"experts", int64_t{4}}, {"capacity_factor", 1.0}, {"balance_weight", 0.02}, {"z_weight", 0.001}});
}

TEST(ExpertsGolden, OneOfFiveExpertsInEverySecondBlock) {
  compare_experts("gpt_switch", {{"experts", int64_t{5}},
                                 {"experts_per_token", int64_t{1}},
                                 {"expert_every", int64_t{2}},
                                 {"capacity_factor", 0.8},
                                 {"balance_weight", 0.05}});
}

}  // namespace
}  // namespace elinvar
