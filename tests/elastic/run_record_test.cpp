// The record of a run as readers see it, whatever the damage to its files.
#include "elastic/run/run_record.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 6;

LedgerLine recorded_line(int64_t step) {
  LedgerLine line{.step = step,
                  .batch = {1, static_cast<uint64_t>(step)},
                  .loss = 1.0 / static_cast<double>(step),
                  .leaves = {{1, {9, static_cast<uint64_t>(step)}}},
                  .gradient = {2, static_cast<uint64_t>(step)},
                  .lr = 0.1,
                  .state = {}};
  if (step % 2 == 0) line.state = Digest{4, static_cast<uint64_t>(step)};
  return line;
}

DigestLine digests_of(int64_t step) {
  return {.step = step, .batches = "0123456789abcdef", .losses = "00", .gradient = "01234567", .leaves = {{1, "x"}}};
}

class Record : public testing::Test {
 protected:
  void SetUp() override {
    Ledger ledger(folder_.path());
    ledger.begin({.virtual_ranks = 2});
    DigestFile digests(folder_.path(), ledger);
    digests.begin({.tensors_every = 1, .gradient = {{"w", "float32", {3}}}});
    for (int64_t step = 1; step <= kSteps; ++step) {
      ledger.record(recorded_line(step));
      digests.record(step, digests_of(step).text());
    }
    ledger.write();
    digests.write();
    folder_.write("metrics.jsonl", "{\"step\":1,\"loss\":1.5}\n{\"step\":2,\"loss\":1.25}\n");
    folder_.write("events.jsonl",
                  "{\"time\":\"t\",\"event\":\"hello\",\"peer\":7,\"environment\":{\"isa\":\"avx2\"}}\n"
                  "{\"time\":\"t\",\"event\":\"start\",\"step\":0}\n");
    whole_ = read_file(folder_ / "ledger.jsonl");
  }
  void write(const std::string& text, const char* file = "ledger.jsonl") { folder_.write(file, text); }
  RunRecord read() const { return RunRecord(folder_.path()); }
  // Checks that every line that was read is one that was written.
  static void expect_true(const RunRecord& record) {
    for (const auto& [step, line] : record.lines()) ASSERT_EQ(line.text(), recorded_line(step).text());
  }

  test::TemporaryFolder folder_;
  std::string whole_;
};

TEST_F(Record, OfAnUndamagedRun) {
  const RunRecord record = read();
  EXPECT_TRUE(record.damage().empty());
  EXPECT_EQ(record.header()->virtual_ranks, 2);
  EXPECT_EQ(record.lines().size(), static_cast<size_t>(kSteps));
  expect_true(record);
  EXPECT_EQ(record.digests(3)->text(), digests_of(3).text());
  EXPECT_FALSE(record.digests(7));
  EXPECT_EQ(record.state(4), (Digest{4, 4}));
  EXPECT_FALSE(record.state(5));
  int metrics = 0;
  EXPECT_TRUE(record.metrics([&](const nlohmann::json& line) { EXPECT_EQ(line["step"], ++metrics); }).empty());
  EXPECT_EQ(metrics, 2);
  EXPECT_EQ(record.events().size(), 2u);
  ASSERT_EQ(record.workers().size(), 1u);
  EXPECT_EQ(record.workers()[0].environment["isa"], "avx2");
}

TEST_F(Record, ALedgerThatIsCutOffAtAnyByte) {
  for (size_t size = 0; size < whole_.size(); ++size) {
    write(whole_.substr(0, size));
    const RunRecord record = read();
    const auto lines = std::count(whole_.begin(), whole_.begin() + static_cast<std::ptrdiff_t>(size), '\n');
    ASSERT_EQ(record.lines().size(), static_cast<size_t>(std::max<int64_t>(0, lines - 1))) << size;
    expect_true(record);
    const bool torn = size > 0 && whole_[size - 1] != '\n';
    ASSERT_EQ(record.damage().size(), static_cast<size_t>(torn) + static_cast<size_t>(lines == 0)) << size;
    if (!torn) continue;
    ASSERT_TRUE(record.damage()[0].cut_off);
    ASSERT_EQ(
        to_string(record.damage()[0]),
        fmt::format("ledger.jsonl, line {}: it is cut off, as a crash leaves it: the line does not count", lines + 1));
  }
}

TEST_F(Record, ALedgerWithAnyByteChanged) {
  for (size_t at = 0; at < whole_.size(); ++at) {
    std::string text = whole_;
    text[at] = static_cast<char>(text[at] ^ 4);
    write(text);
    const RunRecord record = read();
    expect_true(record);
    const size_t lost = whole_[at] == '\n' ? 2 : 1;
    ASSERT_GE(record.lines().size() + lost, static_cast<size_t>(kSteps)) << at;
    ASSERT_FALSE(record.damage().empty()) << at;
    const auto line = std::count(whole_.begin(), whole_.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    ASSERT_EQ(record.damage()[0].line, record.damage()[0].cut_off ? kSteps + 1 : line) << at;
  }
}

TEST_F(Record, OtherFilesCutOffOrChangedAtAnyByte) {
  for (const char* file : {"digests.jsonl", "metrics.jsonl", "events.jsonl"}) {
    const std::string text = read_file(folder_ / file);
    for (size_t at = 0; at < text.size(); at += 3) {
      write(text.substr(0, at), file);
      EXPECT_EQ(read().lines().size(), static_cast<size_t>(kSteps)) << file << at;
      std::string other = text;
      other[at] = static_cast<char>(other[at] ^ 128);
      write(other, file);
      const RunRecord record = read();
      EXPECT_EQ(record.lines().size(), static_cast<size_t>(kSteps)) << file << at;
      if (std::string(file) != "digests.jsonl") continue;
      EXPECT_FALSE(record.damage().empty()) << at;
      for (int64_t step = 1; step <= kSteps; ++step) {
        const auto line = record.digests(step);
        if (line) {
          EXPECT_EQ(line->text(), digests_of(step).text());
        }
      }
    }
    write(text, file);
  }
}

TEST_F(Record, LinesThatAreMissingRepeatedOrOutOfOrder) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; (end = whole_.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(whole_.substr(begin, end - begin));
  const auto damage = [&](const std::vector<size_t>& order) {
    std::string text, all;
    for (const size_t i : order) text += lines[i] + "\n";
    write(text);
    const RunRecord record = read();
    expect_true(record);
    for (const Damage& d : record.damage()) all += to_string(d) + "\n";
    return all;
  };
  EXPECT_EQ(damage({0, 1, 2, 3, 4, 5, 6}), "");
  EXPECT_EQ(damage({0, 1, 2, 5, 6}),
            "ledger.jsonl, line 4: it is that of step 5, the one before of step 2: lines are missing\n");
  EXPECT_EQ(damage({0, 1, 2, 2, 3}), "ledger.jsonl, line 4: it is a second one of step 2, the same\n");
  EXPECT_EQ(damage({0, 1, 3, 2, 4}),
            "ledger.jsonl, line 3: it is that of step 3, the one before of step 1: lines are missing\n"
            "ledger.jsonl, line 4: it is that of step 2, out of order\n");
  EXPECT_EQ(damage({1, 2}), "ledger.jsonl, line 1: it is that of a step where the header should be\n");
  EXPECT_EQ(damage({0, 1, 0, 2}), "ledger.jsonl, line 3: it is another header\n");
  LedgerLine other = recorded_line(2);
  other.loss = 7;
  lines.push_back(other.text());
  EXPECT_EQ(damage({0, 1, 2, 7, 3}), "ledger.jsonl, line 4: it is a second one of step 2, and says something else\n");
}

TEST_F(Record, WhatIsNoneIsRefused) {
  EXPECT_THROW(RunRecord(folder_ / "nothing"), UsageError);
  write("{\"step\":1,\"batch\":\"00\"}\n");
  EXPECT_NE(test::message_of<Failure>([&] { read(); }).find("is of version 1, and this program reads version 2"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar
