// `repro diff` on real runs: disturbed runs that are equal, and injected divergences, each located correctly.
#include <gtest/gtest.h>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/run/run_record.h"
#include "tests/jobs/repro_diff_runs.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Ended;
using test::ReproDiff;

TEST_F(ReproDiff, RunsOfAnyWorkersThatAreKilledAreEqual) {
  run("base");
  run("two", {"--workers", "2", "--chaos", "kill:worker=1,step=5"});
  run("three", {"--workers", "3", "--chaos", "kill:worker=2,step=3;kill:worker=3,step=8;join:step=4"});
  run("five", {"--workers", "5", "--chaos", "kill:worker=5,step=2;drain:worker=1,step=7"});
  run("short", {"--steps", "7"});
  run("sparse",
      {"--set", "run.state_digest_every=5", "--set", "ledger.leaves=none", "--set", "ledger.tensors_every=0"});
  for (const char* other : {"base", "two", "three", "five", "sparse"}) {
    const Json found = diff("base", other, 0);
    EXPECT_EQ(found["verdict"], "equal") << other;
    EXPECT_EQ(found["common_steps"], kSteps) << other;
    EXPECT_FALSE(found.contains("divergence")) << other;
  }
  const Json found = diff("short", "two", 0);
  EXPECT_EQ(found["common_steps"], 7);
  EXPECT_EQ(found["lengths"], (Json{7, kSteps}));
  const Ended text = repro({"diff", folder_ / "base", folder_ / "two"});
  EXPECT_EQ(text.out, "equal: steps 1 to 12, and the state after 12 of them\n");

  const Ended env = repro({"env", folder_ / "five", "--json"});
  EXPECT_EQ(env.code, 0) << env.err;
  const Json environment = Json::parse(env.out);
  ASSERT_EQ(environment["workers"].size(), 5u);
  std::set<int> ids;
  for (const Json& worker : environment["workers"]) {
    ids.insert(worker["id"].get<int>());
    EXPECT_TRUE(worker["environment"].contains("libraries"));
  }
  EXPECT_EQ(ids, (std::set<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(repro({"env", folder_ / "base", folder_ / "base"}).code, 0);
  EXPECT_NE(repro({"env", folder_ / "base"}).out.find("libraries.glibc: "), std::string::npos);

  const Ended digests = repro({"digest", folder_ / "base", "--json"});
  EXPECT_EQ(digests.code, 0) << digests.err;
  const Json last = Json::parse(digests.out)["digests"].back();
  EXPECT_EQ(last["what"], "state after step 12");
  EXPECT_EQ(last["digest"], RunRecord(folder_ / "base").state(kSteps)->hex());
}

TEST_F(ReproDiff, AFlippedBitIsFoundInItsTensor) {
  run("base");
  const DigestHeader layout = *RunRecord(folder_ / "base").digest_header();
  struct Plant {
    const char* what;
    int64_t step, bit;
  };
  for (const Plant& p : std::vector<Plant>{{"parameter", 4, 3},
                                           {"parameter", 1, 32 * 7 + 22},
                                           {"parameter", 8, 32 * 150 + 1},
                                           {"parameter", 11, 32 * 90},
                                           {"optimizer", 4, 5},
                                           {"optimizer", 6, 32 * 60 + 20},
                                           {"optimizer", 12, 32 * 113 + 9}}) {
    const std::string name = fmt::format("{}-{}", p.what, p.step), prefix = p.what[0] == 'p' ? "model." : "optimizer.";
    run(name, {"--chaos", fmt::format("flip:worker=0,step={},bit={},what={}", p.step, p.bit, p.what)});
    const Spot spot = spot_of(layout.state, prefix, p.bit);
    expect(name, {p.step, "update", {}, {spot.tensor}});
    if (p.step % 4 != 0) continue;
    // A checkpoint of that step exists, so the element is found too.
    const Json checkpoint = diff("base", name, 1)["checkpoint"];
    ASSERT_EQ(checkpoint["step"], p.step) << name;
    ASSERT_EQ(checkpoint["tensors"].size(), 1u) << name;
    const Json& tensor = checkpoint["tensors"][0];
    EXPECT_EQ(tensor["name"], spot.tensor);
    EXPECT_EQ(tensor["differing"], 1);
    EXPECT_EQ(tensor["pattern"], "one element");
    const auto bits = [&](int side) {
      return std::stoul(tensor["first"]["bits"][static_cast<size_t>(side)].get<std::string>(), nullptr, 16);
    };
    EXPECT_EQ(bits(0) ^ bits(1), 1ul << spot.bit) << tensor;
    EXPECT_EQ(tensor["first"]["ulps"], 1ul << spot.bit) << tensor;
  }
}

TEST_F(ReproDiff, AFlippedBitOfAGradientOrASumIsFoundInItsTensor) {
  run("base");
  const DigestHeader layout = *RunRecord(folder_ / "base").digest_header();
  struct Plant {
    const char *what, *phase;
    int64_t step, bit;
    int workers, worker;
    std::vector<int> vranks;
  };
  for (const Plant& p : std::vector<Plant>{{"leaf", "leaf", 1, 0, 1, 0, {0}},
                                           {"leaf", "leaf", 5, 32 * 40 + 11, 1, 0, {0}},
                                           {"leaf", "leaf", 7, 32 * 111 + 22, 1, 0, {0}},
                                           {"leaf", "leaf", 3, 17, 3, 2, {1}},
                                           {"leaf", "leaf", 10, 32 * 5, 3, 3, {2}},
                                           {"reduced", "reduction", 1, 2, 1, 0, {}},
                                           {"reduced", "reduction", 6, 32 * 77 + 31, 1, 0, {}},
                                           {"reduced", "reduction", 9, 32 * 115, 2, 0, {}},
                                           {"reduced", "reduction", 12, 32 * 12 + 9, 1, 0, {}},
                                           {"input", "data", 1, 1, 1, 0, {0}},
                                           {"input", "data", 6, 32 * 50 + 7, 1, 0, {0}},
                                           {"input", "data", 9, 32 * 9 + 21, 3, 3, {2}}}) {
    const std::string name = fmt::format("{}-{}", p.what, p.step);
    run(name, {"--workers", std::to_string(p.workers), "--chaos",
               fmt::format("flip:worker={},step={},bit={},what={}", p.worker, p.step, p.bit, p.what)});
    std::vector<std::string> tensors = {"input"};
    if (p.phase != std::string("data")) tensors = {spot_of(layout.gradient, "", p.bit).tensor};
    // With several workers each has one rank gradient, whose gradients are sent one by one, the last layer's first.
    if (p.phase == std::string("leaf") && p.workers > 1) tensors = {"4.weight"};
    expect(name, {p.step, p.phase, p.vranks, tensors});
  }
  // If a ledger has few rank gradients, the difference may be in another one.
  run("few", {"--set", "ledger.leaves=none"});
  run("few-leaf", {"--set", "ledger.leaves=none", "--chaos", "flip:worker=0,step=5,bit=3"});
  const Json d = diff("few", "few-leaf", 1)["divergence"];
  EXPECT_EQ(d["step"], 5);
  EXPECT_EQ(d["phase"], "reduction");
  ASSERT_EQ(d["doubts"].size(), 1u);
  EXPECT_EQ(d["tensors"][0]["name"], layout.gradient[0].name);
}

TEST_F(ReproDiff, AnotherSettingIsNamedAsTheCause) {
  run("base");
  const auto planted = [&](const std::string& name, const std::vector<std::string>& settings,
                           const Expected& expected) {
    std::vector<std::string> more;
    for (const std::string& setting : settings) more.insert(more.end(), {"--set", setting});
    run(name, more);
    expect(name, expected);
  };
  planted("seed", {"run.seed=6"}, {1, "data", {}, {}, "run.seed"});
  planted("order", {"data.shuffle=false"}, {1, "data", {}, {}, "data.shuffle"});
  planted("data", {"data.noise=0.5"}, {1, "data", {0, 1, 2}, {"input"}, "data.noise"});
  planted("batch", {"run.batch_size=7"}, {1, "data", {}, {}, "run.batch_size"});
  planted("ranks", {"run.virtual_ranks=2"}, {1, "data", {}, {}, "run.virtual_ranks"});
  planted("numerics", {"run.numerics=exact"}, {1, "forward", {0, 1, 2}, {}, "run.numerics"});
  planted("smoothing", {"loss.label_smoothing=0.1"}, {1, "forward", {0, 1, 2}, {}, "loss.label_smoothing"});
  planted("lr", {"optimizer.lr=0.051"}, {1, "update", {}, {}, "optimizer.lr"});
  planted("momentum", {"optimizer.momentum=0.8"}, {2, "update", {}, {}, "optimizer.momentum"});
  planted("decay", {"optimizer.weight_decay=0.1"}, {1, "update", {}, {}, "optimizer.weight_decay"});
  planted("ignore", {"loss.ignore_index=1"}, {1, "forward", {}, {}, "loss.ignore_index"});
  // The learning rate differs in one step, and so do all later results.
  run("step", {"--set", "schedule.kind=step", "--set", "schedule.milestones=[20]"});
  run("step-7", {"--set", "schedule.kind=step", "--set", "schedule.milestones=[6]"});
  const Json found = diff("step", "step-7", 1);
  EXPECT_EQ(found["verdict"], "explained");
  EXPECT_EQ(found["divergence"]["step"], 7);
  EXPECT_EQ(found["divergence"]["phase"], "update");
  EXPECT_EQ(found["divergence"]["fields"][0], "lr");
  EXPECT_EQ(found["settings"][0]["key"], "schedule.milestones");
  // A setting that cannot be the cause is not named.
  run("both", {"--set", "run.steps=11", "--set", "optimizer.clip_norm=1e6", "--chaos",
               "flip:worker=0,step=5,bit=3,what=input"});
  const Json both = diff("base", "both", 1);
  EXPECT_EQ(both["verdict"], "violation");
  EXPECT_EQ(both["divergence"]["step"], 5);
  EXPECT_EQ(both["settings"][0]["key"], "optimizer.clip_norm");
  EXPECT_EQ(both["settings"][0]["likely"], false);
}

}  // namespace
}  // namespace elinvar
