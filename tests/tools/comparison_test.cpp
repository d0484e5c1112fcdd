// The causes of differences, and the differences that the contract allows, as `repro diff` derives them from
// constructed runs.
#include "tools/repro/comparison.h"

#include <gtest/gtest.h>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/ledger/ledger.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

class Contract : public testing::Test {
 protected:
  // Makes a run of two steps. `gpus` has the device of the first worker and of each later one, "" for a CPU;
  // "H200/cuDNN 9" is an H200 with that library.
  RunRecord run(const std::string& name, const LedgerHeader& header, double loss,
                const std::vector<std::string>& gpus) {
    const auto environment = [](const std::string& gpu) {
      Json json = {{"host", "h"}, {"isa", "avx2"}};
      const size_t products = gpu.find('/');
      if (!gpu.empty()) json["gpu"] = {{"model", gpu.substr(0, products)}, {"driver", "1"}};
      if (products != std::string::npos) json["gpu"]["products"] = gpu.substr(products + 1);
      return json;
    };
    std::string events;
    for (size_t i = 1; i < gpus.size(); ++i)
      events +=
          Json{{"time", "t"}, {"event", "hello"}, {"peer", i}, {"environment", environment(gpus[i])}}.dump() + "\n";
    folder_.write(name + "/events.jsonl", events);
    folder_.write(name + "/environment.json", environment(gpus.at(0)).dump());
    Ledger ledger(folder_ / name);
    ledger.begin(header);
    for (int64_t step = 1; step <= 2; ++step)
      ledger.record(
          {.step = step, .batch = {1, 1}, .loss = step == 2 ? loss : 1, .gradient = {2, 2}, .lr = 0.1, .state = {}});
    ledger.write();
    return RunRecord(folder_ / name);
  }
  Comparison compared(const LedgerHeader& header, const std::vector<std::string>& a,
                      const std::vector<std::string>& b) {
    ++runs_;
    return compare(run(std::to_string(runs_) + "a", header, 2, a), run(std::to_string(runs_) + "b", header, 3, b));
  }
  test::TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(Contract, FastBitsAreThoseOfOneKindOfDevice) {
  const LedgerHeader fast{.numerics = "fast"};
  Comparison c = compared(fast, {"H200"}, {"A100"});
  EXPECT_EQ(c.verdict, Comparison::Verdict::allowed);
  ASSERT_EQ(c.allows.size(), 1u);
  EXPECT_NE(c.allows[0].find("bits are those of one kind of device"), std::string::npos);
  EXPECT_EQ(c.divergence->step, 2);
  EXPECT_EQ(exit_code_of(c), 1);
  EXPECT_EQ(compared(fast, {"H200"}, {""}).verdict, Comparison::Verdict::allowed);
  EXPECT_EQ(compared(fast, {"H200"}, {"H200", "A100"}).verdict, Comparison::Verdict::allowed)
      << "one that joined has another";
  EXPECT_EQ(compared(fast, {"H200"}, {"H200", "H200"}).verdict, Comparison::Verdict::violation)
      << "how many there are is no reason";
  EXPECT_EQ(compared(fast, {""}, {""}).verdict, Comparison::Verdict::violation);
  EXPECT_EQ(compared(fast, {"H200/cuDNN 9"}, {"H200/cuDNN 9"}).verdict, Comparison::Verdict::violation);
  c = compared(fast, {"H200/cuDNN 9"}, {"H200/cuDNN 10"});
  EXPECT_EQ(c.verdict, Comparison::Verdict::allowed);
  EXPECT_NE(c.allows.at(0).find("H200 with cuDNN 9 and H200 with cuDNN 10"), std::string::npos) << c.allows.at(0);
}

TEST_F(Contract, PortableBitsAreThoseOfAnyDevice) {
  EXPECT_EQ(compared({}, {"H200"}, {"A100"}).verdict, Comparison::Verdict::violation);
  EXPECT_EQ(compared({}, {"H200"}, {""}).verdict, Comparison::Verdict::violation);
}

// Equal runs need no permission to differ.
TEST_F(Contract, EqualFastRunsAreEqual) {
  const LedgerHeader fast{.numerics = "fast"};
  const Comparison c = compare(run("a", fast, 2, {"H200"}), run("b", fast, 2, {"A100"}));
  EXPECT_EQ(c.verdict, Comparison::Verdict::equal);
  EXPECT_TRUE(c.allows.empty());
}

// An imported run has its first state as checkpoint 0.
class FirstState : public Contract {
 protected:
  RunRecord begun(const std::string& name, double loss, std::optional<float> weight, uint64_t batch = 1) {
    folder_.write(name + "/events.jsonl", "");
    Ledger ledger(folder_ / name);
    ledger.begin({});
    ledger.record({.step = 1, .batch = {1, batch}, .loss = loss, .gradient = {2, 2}, .lr = 0.1, .state = {}});
    ledger.write();
    if (weight) {
      const StateDict state = {{"model.w", Tensor::full({3}, *weight)}};
      CheckpointStore store(folder_ / name / "checkpoints");
      store.prepare();
      store.write(0, state, digest(state));
    }
    return RunRecord(folder_ / name);
  }
};

TEST_F(FirstState, IsNamedAsTheCause) {
  const RunRecord fresh = begun("fresh", 1, {}), one = begun("one", 2, 1.0f), other = begun("other", 3, 2.0f);
  for (const bool swapped : {false, true}) {
    const Comparison c = swapped ? compare(one, fresh) : compare(fresh, one);
    EXPECT_EQ(c.verdict, Comparison::Verdict::explained);
    EXPECT_EQ(c.divergence->step, 1);
    ASSERT_EQ(c.settings.size(), 1u);
    EXPECT_EQ(c.settings[0].key, "the first state");
    EXPECT_TRUE(c.settings[0].likely);
    EXPECT_EQ(swapped ? c.settings[0].b : c.settings[0].a, "a new network");
    EXPECT_EQ((swapped ? c.settings[0].a : c.settings[0].b).find("imported weights, "), 0u);
  }
  const Comparison c = compare(one, other);
  EXPECT_EQ(c.verdict, Comparison::Verdict::explained);
  EXPECT_EQ(c.divergence->step, 0);
  EXPECT_EQ(compare(one, begun("same", 3, 1.0f)).verdict, Comparison::Verdict::violation) << "they began alike";
}

TEST_F(FirstState, ExplainsNoOtherData) {
  const Comparison c = compare(begun("fresh", 1, {}), begun("imported", 1, 1.0f, 9));
  EXPECT_EQ(c.divergence->phase, Phase::data);
  EXPECT_EQ(c.verdict, Comparison::Verdict::violation);
  EXPECT_FALSE(c.settings.at(0).likely);
}

}  // namespace
}  // namespace elinvar
