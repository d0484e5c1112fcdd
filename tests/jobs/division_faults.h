#pragma once
// Faults in the tiny job, whose workers compute each rank gradient together (divided_job.h).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
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
};

}  // namespace elinvar::test
