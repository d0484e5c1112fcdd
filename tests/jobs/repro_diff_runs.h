#pragma once
// Runs of a tiny job whose ledger has every rank gradient, and comparison with `repro diff`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elastic/ledger/digest_file.h"
#include "tests/jobs/small_job.h"
#include "tests/jobs/train_process.h"

namespace elinvar::test {

class ReproDiff : public testing::Test, protected TrainRuns {
 protected:
  static constexpr int64_t kSteps = 12;
  static constexpr int kVranks = 3;

  void SetUp() override {
    folder_.write("job.toml", text_of({.steps = kSteps,
                                       .batch_size = 6,
                                       .virtual_ranks = kVranks,
                                       .checkpoint_every = 4,
                                       .state_digest_every = 1,
                                       .samples = 22,
                                       .image_size = 4,
                                       .channels = 4,
                                       .run = "log_every = 100\nkeep = 10\n",
                                       .data = "threads = 0\n"}) +
                                  "[ledger]\nleaves = \"all\"\n");
  }

  pid_t start(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "run", folder_ / "job.toml", "--run-dir", folder_ / name, "--threads", "1", "--set", "optimizer.momentum=0.9"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spawn(arguments, name);
  }
  void run(const std::string& name, const std::vector<std::string>& more = {}) const {
    const Ended ended = wait(start(name, more), name);
    ASSERT_EQ(ended.code, 0) << name << ended.err;
  }

  Ended repro(std::vector<std::string> arguments) const {
    return wait(spawn_program("repro", std::move(arguments), "repro"), "repro");
  }
  // Returns what `repro diff --json` prints; its exit code must be `code`.
  nlohmann::json diff(const std::string& a, const std::string& b, int code) const {
    const Ended ended = repro({"diff", folder_ / a, folder_ / b, "--json"});
    EXPECT_EQ(ended.code, code) << ended.out << ended.err;
    return nlohmann::json::parse(ended.out, nullptr, false);
  }

  // The location at which `repro diff` must find the divergence of a run from `base`.
  struct Expected {
    int64_t step;
    std::string phase;
    std::vector<int> vranks = {};           // {}: any
    std::vector<std::string> tensors = {};  // {}: any
    std::string cause = {};                 // "": no cause is named
  };
  void expect(const std::string& name, const Expected& expected) const {
    SCOPED_TRACE(name);
    const nlohmann::json found = diff("base", name, 1);
    ASSERT_TRUE(found.is_object() && found.contains("divergence"));
    const nlohmann::json& d = found["divergence"];
    EXPECT_EQ(d["step"], expected.step) << d;
    EXPECT_EQ(d["phase"], expected.phase) << d;
    EXPECT_EQ(d["doubts"], nlohmann::json::array()) << d;
    if (!expected.vranks.empty()) {
      EXPECT_EQ(d["virtual_ranks"], expected.vranks) << d;
    }
    std::vector<std::string> tensors;
    for (const nlohmann::json& tensor : d["tensors"]) tensors.push_back(tensor["name"]);
    if (!expected.tensors.empty()) {
      EXPECT_EQ(tensors, expected.tensors) << d;
    }
    EXPECT_EQ(found["verdict"], expected.cause.empty() ? "violation" : "explained");
    std::vector<std::string> causes;
    for (const nlohmann::json& setting : found["settings"])
      if (setting["likely"]) causes.push_back(setting["key"]);
    EXPECT_EQ(causes, expected.cause.empty() ? std::vector<std::string>() : std::vector<std::string>{expected.cause});
  }

  // Returns the place of a bit that is counted through all tensors of a layout whose names begin with `prefix`.
  struct Spot {
    std::string tensor;
    int64_t element;
    int bit;
  };
  static Spot spot_of(const std::vector<TensorLayout>& layout, const std::string& prefix, int64_t bit) {
    int64_t total = 0;
    for (const TensorLayout& t : layout)
      if (t.name.starts_with(prefix)) total += 32 * t.numel();
    bit %= total;
    for (const TensorLayout& t : layout) {
      if (!t.name.starts_with(prefix)) continue;
      if (bit < 32 * t.numel()) return {t.name, bit / 32, static_cast<int>(bit % 32)};
      bit -= 32 * t.numel();
    }
    return {};
  }
};

}  // namespace elinvar::test
