// What the contract allows, as `repro diff` reads it from runs that are made up.
#include "tools/repro/comparison.h"

#include <gtest/gtest.h>

#include "elastic/ledger.h"
#include "tests/temporary_folder.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

class Contract : public testing::Test {
 protected:
  // A run of two steps; `gpus`: the device of the first worker and of each that joined, "" being a CPU.
  RunRecord run(const std::string& name, const LedgerHeader& header, double loss,
                const std::vector<std::string>& gpus) {
    const auto environment = [](const std::string& gpu) {
      Json json = {{"host", "h"}, {"isa", "avx2"}};
      if (!gpu.empty()) json["gpu"] = {{"model", gpu}, {"driver", "1"}};
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

using Verdict = Comparison::Verdict;

TEST_F(Contract, FastBitsAreThoseOfOneKindOfDevice) {
  const LedgerHeader fast{.numerics = "fast"};
  Comparison c = compared(fast, {"H200"}, {"A100"});
  EXPECT_EQ(c.verdict, Verdict::allowed);
  ASSERT_EQ(c.allows.size(), 1u);
  EXPECT_NE(c.allows[0].find("bits are those of one kind of device"), std::string::npos);
  EXPECT_EQ(c.divergence->step, 2);
  EXPECT_EQ(exit_code_of(c), 1);
  EXPECT_EQ(compared(fast, {"H200"}, {""}).verdict, Verdict::allowed);
  EXPECT_EQ(compared(fast, {"H200"}, {"H200", "A100"}).verdict, Verdict::allowed) << "one that joined has another";
  EXPECT_EQ(compared(fast, {"H200"}, {"H200", "H200"}).verdict, Verdict::violation)
      << "how many there are is no reason";
  EXPECT_EQ(compared(fast, {""}, {""}).verdict, Verdict::violation);
}

TEST_F(Contract, PortableBitsAreThoseOfAnyDevice) {
  EXPECT_EQ(compared({}, {"H200"}, {"A100"}).verdict, Verdict::violation);
  EXPECT_EQ(compared({}, {"H200"}, {""}).verdict, Verdict::violation);
}

// What is equal needs no leave to differ.
TEST_F(Contract, EqualFastRunsAreEqual) {
  const LedgerHeader fast{.numerics = "fast"};
  const Comparison c = compare(run("a", fast, 2, {"H200"}), run("b", fast, 2, {"A100"}));
  EXPECT_EQ(c.verdict, Verdict::equal);
  EXPECT_TRUE(c.allows.empty());
}

}  // namespace
}  // namespace elinvar
