#pragma once
// Runs of jobs whose workers compute each rank gradient together, to be compared with the run of one worker.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tensor/base/file.h"
#include "tests/jobs/divided_job.h"
#include "tests/jobs/train_process.h"
#include "tests/support/lines.h"

namespace elinvar::test {

inline bool every_division() { return std::getenv("ELINVAR_FULL") != nullptr; }

class DividedRuns : public testing::Test, protected TrainRuns {
 protected:
  using Words = std::vector<std::string>;

  Ended train(const Words& words) const { return wait(spawn(words)); }
  void trained(const std::string& name, Words more) const {
    more.insert(more.begin(), {"run", folder_ / "job.toml", "--run-dir", folder_ / name, "--threads", "1"});
    const Ended ended = wait(spawn(more, name), name);
    EXPECT_EQ(ended.code, 0) << name << ": " << ended.err;
  }
  // Returns what must be equal in all divisions: facts, digests and scores.
  std::string result(const std::string& name) const {
    std::string text = ledger(name) + digests(name);
    for (const std::string& line : lines_of(read_file(folder_ / name / "metrics.jsonl")))
      if (line.find("validation_loss") != std::string::npos) text += line + "\n";
    return text;
  }
  std::string trained_result(const std::string& name, const Words& more) const {
    trained(name, more);
    return result(name);
  }
  void expect_undivided(const Words& settings, const std::vector<Division>& divisions) const {
    const std::string name = fmt::format("{}", fmt::join(settings, ""));
    SCOPED_TRACE(name);
    const std::string alone = trained_result(name + "alone", settings);
    for (const Division& division : divisions) {
      const std::string divided = name + division.name();
      EXPECT_EQ(trained_result(divided, division.complete(settings)), alone) << division.name();
      EXPECT_EQ(generations(divided).at(0), static_cast<size_t>(division.workers()));
      if (HasFailure()) return;
    }
  }
  // Returns the number of members of each generation.
  std::vector<size_t> generations(const std::string& name) const {
    std::vector<size_t> sizes;
    for (const std::string& line : lines_of(read_file(folder_ / name / "events.jsonl")))
      if (const auto event = nlohmann::json::parse(line); event.contains("members"))
        sizes.push_back(event.at("members").size());
    return sizes;
  }
};

}  // namespace elinvar::test
