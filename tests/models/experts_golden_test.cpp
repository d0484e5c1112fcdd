// Compares small transformers with mixtures of experts with PyTorch in float64 (golden/make_experts.py).
#include <gtest/gtest.h>

#include "tests/models/golden_network.h"

namespace elinvar {
namespace {

using SettingsOf = std::map<std::string, Value>;

void compare_experts(const char* name, const std::string& kind, SettingsOf settings, int64_t most_shards) {
  const InputInfo info{.sample = {12}, .classes = 40, .dtype = DType::i32};
  const auto whole = build(spec(kind, settings), info, 1);
  for (const int64_t shards : {int64_t{1}, most_shards}) {
    SCOPED_TRACE(shards);
    if (shards > 1) settings["virtual_shards"] = shards;
    const auto network = build(spec(kind, settings), info, 1);
    compare_with_golden(name, *whole, *network, integers<int32_t>("input", {3, 12}, 40),
                        integers<int64_t>("target", {3, 12}, 40));
  }
}

void compare_experts_of_gpt(const char* name, SettingsOf mixture) {
  mixture.merge(
      SettingsOf{{"layers", int64_t{2}}, {"heads", int64_t{3}}, {"channels", int64_t{24}}, {"context", int64_t{16}}});
  compare_experts(name, "gpt", mixture, 3);
}

TEST(ExpertsGolden, TwoOfFourExpertsInEachBlock) {
  compare_experts_of_gpt(
      "gpt_experts",
      {{"experts", int64_t{4}}, {"capacity_factor", 1.0}, {"balance_weight", 0.02}, {"z_weight", 0.001}});
}

TEST(ExpertsGolden, OneOfFiveExpertsInEverySecondBlock) {
  compare_experts_of_gpt("gpt_switch", {{"experts", int64_t{5}},
                                        {"experts_per_token", int64_t{1}},
                                        {"expert_every", int64_t{2}},
                                        {"capacity_factor", 0.8},
                                        {"balance_weight", 0.05}});
}

TEST(ExpertsGolden, GatedExpertsOfALlama) {
  compare_experts("llama_experts", "llama",
                  {{"layers", int64_t{2}},
                   {"heads", int64_t{6}},
                   {"kv_heads", int64_t{2}},
                   {"channels", int64_t{24}},
                   {"hidden", int64_t{32}},
                   {"experts", int64_t{5}},
                   {"capacity_factor", 1.0},
                   {"balance_weight", 0.02},
                   {"z_weight", 0.001}},
                  2);
}

}  // namespace
}  // namespace elinvar
