#pragma once
// Faults in the tiny job, whose workers compute each rank gradient together (divided_job.h).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/jobs/divided_job.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar::test {

inline bool every_fault() { return std::getenv("ELINVAR_FULL") != nullptr; }

inline constexpr const char* kTinyAdamW = "kind = \"adamw\"\nweight_decay = 0.1\nclip_norm = 0.5\nema_decay = 0.9\n";
inline constexpr const char* kTinyLamb = "kind = \"lamb\"\nweight_decay = 0.1\nclip_norm = 0.5\n";

class DivisionFaults : public TinyJob {
 protected:
  using Words = std::vector<std::string>;

  explicit DivisionFaults(const char* optimizer = kTinyAdamW) : TinyJob("", optimizer, kTinyShards) {}

  static Words options(const Division& division, const std::string& chaos, const Words& more = {}) {
    Words words = division.options(more);
    if (!chaos.empty()) words.insert(words.end(), {"--chaos", chaos});
    return words;
  }
  size_t count(const std::string& name, const std::string& event) const {
    size_t n = 0;
    for (const nlohmann::json& each : events(name, "event")) n += each["event"] == event;
    return n;
  }
  void expect_undisturbed(const std::string& name, const Ended& ended) const {
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ledger(name), undisturbed());
    EXPECT_EQ(digests(name), digests("whole"));
    EXPECT_EQ(remaining_children(std::chrono::seconds(10)), "");
  }
  // Runs with the random faults of a seed, some of which kill at `point`, and `others`, and with these options. Returns
  // whether it ended as it should.
  bool endures_random_faults(int64_t seed, const Division& division, const char* point, const std::string& others = "",
                             Words more = {}) const {
    std::string chaos = fmt::format("random:seed={},rate={}", seed, seed % 3 == 0 ? 0.06 : 0.02);
    if (seed % 4 == 1) chaos += fmt::format(";kill:coordinator,step={}", 1 + seed * 37 % 150);
    if (seed % 5 == 2) chaos += fmt::format(";kill:all,step={}", 1 + seed * 53 % 150);
    if (seed % 6 == 3) chaos += fmt::format(";drop:worker=0,step={}", 1 + seed * 71 % 150);
    if (seed % 7 == 4) chaos += fmt::format(";kill:worker=0,step={},at={}", 1 + seed * 91 % 150, point);
    chaos += others;
    const std::string name = fmt::format("seed{}", seed);
    if (seed % 4 >= 2) more.insert(more.end(), {"--set", "run.audit_every=2"});
    if (seed % 3 == 1) more.insert(more.end(), {"--set", "run.eval_every=7"});
    std::string wrong = run_through(name, options(division, chaos, more));
    if (wrong.empty() && !events(name, "verdict").empty()) wrong = "an audit has found something";
    if (!wrong.empty()) ADD_FAILURE() << wrong << "\nseed " << seed << ", " << division.name() << ", " << chaos;
    else std::filesystem::remove_all(folder_ / name);
    return wrong.empty();
  }
};

}  // namespace elinvar::test
