// `repro diff` on runs whose files were edited: facts that differ, lines that are missing or damaged, and the patterns
// of differing states.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/ledger/ledger.h"
#include "tensor/base/file.h"
#include "tests/jobs/repro_diff_runs.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Ended;

// Copies of the run `base` whose ledger is edited.
class ReproFiles : public test::ReproDiff {
 protected:
  void SetUp() override {
    ReproDiff::SetUp();
    run("base");
    lines_ = test::lines_of(ledger("base"));
  }
  // Makes the run `name`, a copy of the base with these lines in its ledger.
  void edit(const std::string& name, const std::vector<std::string>& lines) const {
    fs::copy(folder_ / "base", folder_ / name, fs::copy_options::recursive);
    replace_file(folder_ / name / "ledger.jsonl", fmt::format("{}\n", fmt::join(lines, "\n")));
  }
  template <class F>
  void edit(const std::string& name, int64_t step, F change) const {
    std::vector<std::string> lines = lines_;
    LedgerLine line = LedgerLine::parse(lines[static_cast<size_t>(step)]);
    change(line);
    lines[static_cast<size_t>(step)] = line.text();
    edit(name, lines);
  }
  std::vector<std::string> lines_;
};

TEST_F(ReproFiles, EveryFactCounts) {
  edit("batch", 3, [](LedgerLine& line) { line.batch.low ^= 1; });
  edit("loss", 4, [](LedgerLine& line) { line.loss = std::nextafter(line.loss, 0.0); });
  edit("leaf", 5, [](LedgerLine& line) { line.leaves[2].high ^= 1; });
  edit("gradient", 6, [](LedgerLine& line) { line.gradient.low ^= 1; });
  edit("rate", 7, [](LedgerLine& line) { line.lr = std::nextafter(line.lr, 1.0); });
  edit("state", 9, [](LedgerLine& line) { line.state->low ^= 1; });
  expect("batch", {3, "data"});
  expect("loss", {4, "forward"});
  expect("leaf", {5, "leaf", {2}});
  expect("gradient", {6, "reduction"});
  expect("rate", {7, "update"});
  expect("state", {9, "update"});
}

TEST_F(ReproFiles, LinesThatAreMissingOrDamagedLeaveTheOthersToCompare) {
  std::vector<std::string> lines = lines_;
  lines.erase(lines.begin() + 5);
  edit("missing", lines);
  Json found = diff("base", "missing", 3);
  EXPECT_EQ(found["verdict"], "equal");
  EXPECT_EQ(found["common_steps"], kSteps - 1);
  EXPECT_EQ(found["damage"]["b"][0]["line"], 6);
  lines = lines_;
  lines.insert(lines.begin() + 5, lines[4]);
  edit("twice", lines);
  EXPECT_EQ(diff("base", "twice", 3)["common_steps"], kSteps);
  lines = lines_;
  lines[7][20] = lines[7][20] == '0' ? '1' : '0';
  edit("damaged", lines);
  found = diff("damaged", "base", 3);
  EXPECT_EQ(found["common_steps"], kSteps - 1);
  EXPECT_EQ(found["damage"]["a"][0]["line"], 8);
  const Ended text = repro({"diff", folder_ / "damaged", folder_ / "base"});
  EXPECT_NE(text.out.find("but lines are damaged, and their steps not compared"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("A: ledger.jsonl, line 8: its checksum is "), std::string::npos) << text.out;
  // A torn last line, as a crash leaves it, does not count as damage: the lines before it are compared.
  edit("torn", lines_);
  fs::resize_file(folder_ / "torn/ledger.jsonl", ledger("base").size() - 5);
  EXPECT_EQ(diff("base", "torn", 0)["common_steps"], kSteps - 1);
  edit("empty", {});
  fs::resize_file(folder_ / "empty/ledger.jsonl", 0);
  fs::remove_all(folder_ / "empty/checkpoints");
  EXPECT_EQ(diff("base", "empty", 3)["verdict"], "unknown");
  fs::remove(folder_ / "empty/ledger.jsonl");
  EXPECT_EQ(repro({"diff", folder_ / "base", folder_ / "empty"}).code, 2);
  EXPECT_EQ(repro({"diff", folder_ / "base"}).code, 2);
}

TEST_F(ReproFiles, WhatTheContractAllowsIsToldApart) {
  std::vector<std::string> lines = lines_;
  LedgerHeader header = LedgerHeader::parse(lines[0]);
  header.numerics_version += 1;
  lines[0] = header.text();
  LedgerLine line = LedgerLine::parse(lines[5]);
  line.loss += 1;
  lines[5] = line.text();
  edit("version", lines);
  const Json found = diff("base", "version", 1);
  EXPECT_EQ(found["verdict"], "allowed");
  EXPECT_EQ(found["divergence"]["step"], 5);
  EXPECT_NE(found["allows"][0].get<std::string>().find("versions 1 and 2 of the numerics"), std::string::npos);
}

// States that differ in chosen elements.
TEST_F(ReproFiles, PatternsAreNamed) {
  edit("state", 4, [](LedgerLine& line) { line.state->low ^= 1; });
  const auto pattern = [&](const std::function<void(StateDict&)>& change) {
    StateDict a = {{"model.a", Tensor::full({16, 12}, 1)},
                   {"model.conv", Tensor::full({8, 3, 3, 4}, 1)},
                   {"model.x", Tensor::full({7}, 1)},
                   {"optimizer.a.momentum", Tensor::full({16, 12}, 1)}},
              b;
    for (const auto& [name, tensor] : a) b.emplace(name, tensor.clone());
    change(b);
    for (const auto& [name, state] : {std::pair("base", &a), std::pair("state", &b)}) {
      fs::remove_all(folder_ / name / "checkpoints");
      CheckpointStore store(folder_ / name / "checkpoints");
      store.prepare();
      store.write(4, *state, digest(*state));
    }
    const Json checkpoint = diff("base", "state", 1)["checkpoint"];
    std::string text = checkpoint["pattern"];
    for (const Json& tensor : checkpoint["tensors"]) text += ", " + tensor["pattern"].get<std::string>();
    return text;
  };
  const auto at = [](StateDict& state, const char* name, int64_t element) -> float& {
    return state.at(name).data<float>()[element];
  };
  EXPECT_EQ(pattern([&](StateDict& s) { at(s, "model.x", 3) = 2; }), "one element of one tensor, one element");
  EXPECT_EQ(pattern([&](StateDict& s) {
              at(s, "model.a", 3) = 2;
              at(s, "optimizer.a.momentum", 3) = 2;
            }),
            "one element of one parameter and of what the optimizer keeps of it, one element, one element");
  EXPECT_EQ(pattern([&](StateDict& s) {
              for (int64_t i = 2; i < 9; ++i) at(s, "model.a", 5 * 12 + i) = 2;
            }),
            "row 5 of one tensor, row 5");
  EXPECT_EQ(pattern([&](StateDict& s) {
              for (int64_t i = 0; i < 16; ++i) at(s, "model.a", 12 * i + 7) = 2;
            }),
            "column 7 of one tensor, column 7");
  EXPECT_EQ(pattern([&](StateDict& s) {
              for (int64_t i = 0; i < 36; ++i) at(s, "model.conv", 2 * 36 + i) = 2;
            }),
            "output channel 2 of one tensor, output channel 2");
  EXPECT_EQ(pattern([&](StateDict& s) {
              for (int64_t row = 4; row < 8; ++row)
                for (int64_t column = 8; column < 12; ++column) at(s, "model.a", 12 * row + column) = 2;
            }),
            "a tile, 4 to 7 x 8 to 11 of one tensor, a tile, 4 to 7 x 8 to 11");
  EXPECT_EQ(pattern([&](StateDict& s) {
              for (auto& [name, tensor] : s)
                for (float& x : tensor.span<float>()) x = 3;
            }),
            "everything, all of it, all of it, all of it, all of it");
  // Distances in ulps: from 1 to 2 there are 2^23; a NaN has none.
  (void)pattern([&](StateDict& s) {
    at(s, "model.x", 0) = std::nextafter(1.0f, 2.0f);
    at(s, "model.x", 1) = std::bit_cast<float>(std::bit_cast<uint32_t>(1.0f) + 3);
    at(s, "model.x", 2) = 2;
    at(s, "model.x", 3) = std::nanf("");
  });
  const Ended text = repro({"diff", folder_ / "base", folder_ / "state"});
  EXPECT_NE(text.out.find("at [0] 1 and 1.0000001, bits 3f800000 and 3f800001, 1 ulps"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("elements x ulps: 1 x 1, 1 x 2-3, 1 x 2^23-2^24"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("1 where one of the two is no number"), std::string::npos) << text.out;
}

}  // namespace
}  // namespace elinvar
