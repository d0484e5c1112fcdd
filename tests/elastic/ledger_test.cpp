#include "elastic/ledger/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "comm/fields.h"
#include "elastic/ledger/digest_file.h"
#include "elastic/ledger/sealed_line.h"
#include "elastic/step/step.h"
#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

LedgerLine line_of(int64_t step) {
  LedgerLine line{.step = step,
                  .batch = {1, static_cast<uint64_t>(step)},
                  .loss = 1.0 / static_cast<double>(step),
                  .leaves = {{static_cast<int>(step), {5, 6}}, {0, {7, 8}}},
                  .gradient = {2, 3},
                  .lr = 0.25,
                  .state = {}};
  if (step % 3 == 0) line.state = Digest{4, static_cast<uint64_t>(step)};
  return line;
}

void record(const std::filesystem::path& folder, int64_t begin, int64_t end) {
  Ledger ledger(folder);
  ledger.begin({.config = {1, 2}});
  for (int64_t step = begin; step <= end; ++step) ledger.record(line_of(step));
  ledger.write();
}

TEST(Ledger, LinesRoundTrip) {
  for (int64_t step = 1; step < 5; ++step) {
    const LedgerLine line = line_of(step);
    EXPECT_EQ(LedgerLine::parse(line.text()).text(), line.text());
  }
  EXPECT_EQ(line_of(2).text(),
            sealed(R"({"step":2,"batch":"00000000000000010000000000000002","loss":"3fe0000000000000",)"
                   R"("leaves":{"0":"00000000000000070000000000000008",)"
                   R"("2":"00000000000000050000000000000006"},)"
                   R"("gradient":"00000000000000020000000000000003","lr":"3fd0000000000000"})"));
  for (const char* bad : {"", "{}", "[1]", R"({"step":1,"batch":"x","loss":"0","gradient":""})"})
    EXPECT_THROW(LedgerLine::parse(bad), Failure) << bad;
}

// Every byte that is changed, added or lost is detected.
TEST(SealedLine, EveryDamageIsSeen) {
  const std::string line = sealed(R"({"a":1,"b":"two"})");
  EXPECT_EQ(unsealed(line)["b"], "two");
  for (size_t at = 0; at < line.size(); ++at) {
    for (const int bit : {1, 32, 128}) {
      std::string other = line;
      other[at] = static_cast<char>(other[at] ^ bit);
      EXPECT_THROW(unsealed(other), Failure) << other;
    }
    EXPECT_THROW(unsealed(line.substr(0, at)), Failure) << at;
    EXPECT_THROW(unsealed(line.substr(0, at) + "0" + line.substr(at)), Failure) << at;
  }
  EXPECT_THROW(unsealed(line + line), Failure);
  EXPECT_NE(fault_of_seal(R"({"a":1})"), "");
  EXPECT_NE(fault_of_seal(""), "");
}

TEST(Ledger, TheHeaderRoundTripsAndIsOfOneRun) {
  LedgerHeader header{
      .numerics = "portable", .scaling = "adaptive", .virtual_ranks = 7, .config = {1, 2}, .data = {3, 4}};
  header.options = {.leaves = LedgerOptions::Leaves::sample, .tensors_every = 5};
  EXPECT_EQ(LedgerHeader::parse(header.text()).text(), header.text());
  EXPECT_EQ(header.text().find("virtual_shards"), std::string::npos) << "ledgers of older runs have no such key";
  LedgerHeader sharded = header;
  sharded.virtual_shards = 4;
  EXPECT_EQ(LedgerHeader::parse(sharded.text()).virtual_shards, 4);
  EXPECT_EQ(LedgerHeader::parse(sharded.text()).text(), sharded.text());
  for (const auto& [ranks, shards] : {std::pair{0, 4}, std::pair{-1, 1}, std::pair{7, 0}, std::pair{7, -4}}) {
    sharded.virtual_ranks = ranks;
    sharded.virtual_shards = shards;
    EXPECT_THROW(LedgerHeader::parse(sharded.text()), Failure) << ranks << " ranks, " << shards << " shards";
  }
  EXPECT_NE(test::message_of<Failure>([&] {
              LedgerHeader::parse(sealed(R"({"ledger":3})"));
            }).find("its version is 3, and this program reads 2"),
            std::string::npos);
  const test::TemporaryFolder folder;
  {
    Ledger ledger(folder.path());
    ledger.begin({});
    ledger.begin(header);  // the run that began the ledger made no step
    ledger.record(line_of(1));
    ledger.write();
    ledger.begin(header);
  }
  Ledger ledger(folder.path());
  EXPECT_EQ(ledger.length(), 1);
  ledger.begin(header);
  EXPECT_THROW(ledger.begin({}), UsageError);
  EXPECT_EQ(ledger_steps(folder / "ledger.jsonl"), std::vector<std::string>{line_of(1).text()});
}

TEST(DigestFile, GoesOnWhereTheLedgerEnds) {
  const test::TemporaryFolder folder;
  const DigestHeader header{.tensors_every = 2, .gradient = {{"w", "float32", {3, 4}}}, .state = {{"s", "int64", {}}}};
  EXPECT_EQ(DigestHeader::parse(header.text()).text(), header.text());
  const auto line = [](int64_t step) {
    return DigestLine{.step = step,
                      .batches = "b",
                      .losses = "l",
                      .gradient = "g",
                      .leaves = {{2, "x"}, {10, "y"}},
                      .state = {"t", "c"}};
  };
  EXPECT_EQ(DigestLine::parse(line(4).text()).text(), line(4).text());
  Ledger ledger(folder.path());
  ledger.begin({});
  const auto reach = [&](int64_t steps) {
    while (ledger.length() < steps) {
      LedgerLine next = line_of(ledger.length() + 1);
      next.state.reset();
      ledger.record(next);
    }
  };
  {
    DigestFile file(folder.path(), ledger);
    file.begin(header);
    for (const int64_t step : {2, 4, 4, 6, 2}) file.record(step, line(step).text());
    file.write();
    EXPECT_EQ(file.last(), 6);
  }
  const std::string whole = read_file(folder / "digests.jsonl");
  reach(5);
  for (size_t size = 0; size <= whole.size(); size += 7) {
    replace_file(folder / "digests.jsonl", whole.substr(0, size));
    DigestFile file(folder.path(), ledger);
    file.begin(header);
    for (const int64_t step : {2, 4, 6}) file.record(step, line(step).text());
    file.write();
    ASSERT_EQ(read_file(folder / "digests.jsonl"), whole) << size;
  }
  std::string damaged = whole;
  damaged[whole.size() - 20] ^= 1;
  replace_file(folder / "digests.jsonl", damaged);
  reach(9);
  EXPECT_NE(test::message_of<Failure>([&] { DigestFile(folder.path(), ledger); }).find("line 4"), std::string::npos);
}

// The ledger may be put back from a copy, so lines that it does not reach are lost only when the run goes on.
TEST(DigestFile, KeepsLinesUntilTheRunBegins) {
  const test::TemporaryFolder folder;
  const DigestHeader header{.tensors_every = 1, .gradient = {}, .state = {}};
  const Ledger ledger(folder.path());
  {
    DigestFile file(folder.path(), ledger);
    file.begin(header);
    for (const int64_t step : {1, 2}) file.record(step, DigestLine{.step = step}.text());
    file.write();
  }
  const std::string whole = read_file(folder / "digests.jsonl");
  DigestFile again(folder.path(), ledger);
  EXPECT_EQ(again.last(), 0);
  EXPECT_EQ(read_file(folder / "digests.jsonl"), whole);
  again.begin(header);
  EXPECT_EQ(read_file(folder / "digests.jsonl"), header.text() + "\n");
}

// Each line is whole, but the lines are not those that the run wrote.
TEST(DigestFile, LinesThatAreDoubledSwappedOrMissingAreSeen) {
  const test::TemporaryFolder folder;
  const DigestHeader header{.tensors_every = 3, .gradient = {{"w", "float32", {3, 4}}}, .state = {{"s", "int64", {}}}};
  Ledger ledger(folder.path());
  ledger.begin({});
  for (int64_t step = 1; step <= 14; ++step) {
    LedgerLine line = line_of(step);
    if (step % 4 != 0) line.state.reset();
    else line.state = Digest{1, 1};
    ledger.record(line);
  }
  std::vector<std::string> lines = {header.text()};
  for (const int64_t step : {3, 4, 6, 8, 9, 12}) lines.push_back(DigestLine{.step = step, .batches = "b"}.text());
  const auto fault = [&](const std::vector<std::string>& of, int64_t step = 12) {
    replace_file(folder / "digests.jsonl", fmt::format("{}\n", fmt::join(of, "\n")));
    return test::message_of<Failure>([&] { DigestFile(folder.path(), ledger).check_reaches(ledger, step); });
  };
  EXPECT_EQ(fault(lines), "");
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<std::string> doubled = lines, swapped = lines, removed = lines;
    doubled.insert(doubled.begin() + static_cast<std::ptrdiff_t>(i), lines[i]);
    EXPECT_NE(fault(doubled), "") << i;
    removed.erase(removed.begin() + static_cast<std::ptrdiff_t>(i));
    if (i != 1) {
      EXPECT_NE(fault(removed), "") << i;
    }
    if (i + 1 == lines.size()) continue;
    std::swap(swapped[i], swapped[i + 1]);
    EXPECT_NE(fault(swapped), "") << i;
  }
  // If the file was moved away, a new one begins later.
  lines.erase(lines.begin() + 1);
  EXPECT_EQ(fault(lines), "");
  EXPECT_TRUE(DigestFile(folder.path(), ledger).begins_late(ledger, 12));
  // Lines after the checkpoint from which the run continues are recorded again.
  lines.pop_back();
  EXPECT_EQ(fault(lines, 11), "");
  EXPECT_NE(fault(lines, 12).find("ends before the line of step 12"), std::string::npos);
}

TEST(Ledger, ALineOfAdaptiveScalingTellsTheBatch) {
  LedgerLine line = line_of(2);
  line.batch_size = 96;
  EXPECT_EQ(line.text().substr(0, 43), R"({"step":2,"batch_size":96,"batch":"00000000)");
  EXPECT_EQ(LedgerLine::parse(line.text()).text(), line.text());
}

TEST(Ledger, WhatTwoLinesTellDifferently) {
  LedgerLine a = line_of(2), b = a;
  EXPECT_TRUE(differing_fields(a, b).empty());
  a.leaves = {{0, {1, 1}}, {3, {1, 2}}, {7, {1, 3}}};
  b.leaves = {{0, {1, 1}}, {3, {1, 5}}, {9, {1, 3}}};
  b.batch.low ^= 1;
  b.state = Digest{8, 8};
  a.state = std::nullopt;
  EXPECT_EQ(differing_fields(a, b), (std::vector<std::string>{"batch", "leaf 3"})) << "of what both tell";
  a.state = Digest{8, 9};
  a.loss = 0.0;
  b.loss = -0.0;
  EXPECT_EQ(differing_fields(a, b), (std::vector<std::string>{"batch", "loss", "leaf 3", "state"})) << "bits count";
}

TEST(Ledger, WhereTheBatchChanges) {
  std::vector<GenerationScaling::Change> changes;
  for (const auto& [step, batch] : std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {2, 8}, {3, 16}, {4, 16}, {5, 8}}) {
    LedgerLine line = line_of(step);
    line.batch_size = batch;
    note_batch(changes, 8, line);
  }
  note_batch(changes, 8, line_of(6));
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].batch, 16);
  EXPECT_EQ(changes[1].batch, 8);
  std::vector<GenerationScaling::Change> at_once;
  LedgerLine first = line_of(1);
  first.batch_size = 16;
  note_batch(at_once, 8, first);
  EXPECT_EQ(at_once.size(), 1u);
}

TEST(Ledger, ChangesOfTheBatchAreThoseOfItsLinesAndThenOfTheExpectedOnes) {
  const test::TemporaryFolder folder;
  Ledger ledger(folder.path());
  ledger.begin({});
  std::vector<std::string> expected;
  for (int64_t step = 1; step <= 3; ++step) {
    LedgerLine line = line_of(step);
    line.batch_size = step == 3 ? 16 : 8;
    expected.push_back(line.text());
  }
  ledger.expect(expected);
  ledger.record(LedgerLine::parse(expected[0]));
  EXPECT_EQ(ledger.known(), 3);
  const std::vector<GenerationScaling::Change> changes = batch_changes(ledger, 8);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].batch, 16);
}

// The lines are compared as far as the replayed run went.
TEST(Ledger, LinesMustBeThoseOfTheRunThatIsReplayed) {
  const test::TemporaryFolder folder;
  Ledger ledger(folder.path());
  ledger.begin({});
  std::vector<std::string> expected;
  for (int64_t step = 1; step < 4; ++step) expected.push_back(line_of(step).text());
  ledger.expect(expected);
  EXPECT_TRUE(ledger.record(line_of(1)));
  LedgerLine other = line_of(2);
  other.loss = 7;
  other.batch_size = 8;
  other.lr = 0.1;
  ASSERT_FALSE(other.leaves.empty());
  other.leaves.begin()->second.low ^= 1;
  try {
    ledger.record(other);
    FAIL() << "it is recorded";
  } catch (const Failure& failure) {
    const std::string leaf = fmt::format("leaf {}", other.leaves.begin()->first);
    EXPECT_NE(std::string(failure.what())
                  .find("than in the run that is replayed (batch_size, loss, " + leaf + ", lr).\n  there: "),
              std::string::npos)
        << failure.what();
  }
  EXPECT_EQ(ledger.contradiction(), other.text());
  LedgerLine fewer = line_of(2);
  fewer.leaves.clear();
  EXPECT_NE(test::message_of<Failure>([&] { ledger.record(fewer); }).find("replayed (leaves)"), std::string::npos);
  EXPECT_EQ(ledger.length(), 1);
  for (int64_t step = 2; step < 6; ++step) EXPECT_TRUE(ledger.record(line_of(step)));
}

// A file that is cut at any byte continues after its whole lines and ends up the same.
TEST(Ledger, SurvivesACrashAtAnyByte) {
  const test::TemporaryFolder folder;
  record(folder.path(), 1, 6);
  const std::filesystem::path path = folder / "ledger.jsonl";
  const std::string whole = read_file(path);
  for (size_t size = 0; size <= whole.size(); ++size) {
    std::filesystem::resize_file(path, 0);
    File::append(path).write(whole.substr(0, size));
    const auto lines =
        static_cast<int64_t>(std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size), '\n'));
    EXPECT_EQ(Ledger(folder.path()).length(), std::max<int64_t>(0, lines - 1));
    record(folder.path(), std::max<int64_t>(1, lines - 2), 6);
    ASSERT_EQ(read_file(path), whole) << size;
  }
}

TEST(Ledger, ARunThatBeganOtherwiseIsNamedByWhatDiffers) {
  const test::TemporaryFolder folder;
  record(folder.path(), 1, 3);
  Ledger ledger(folder.path());
  const LedgerHeader other{.virtual_ranks = 7, .config = {1, 2}, .data = {1, 2}};
  const std::string said = test::message_of<UsageError>([&] { ledger.begin(other); });
  EXPECT_NE(said.find("a run with another data, virtual_ranks;"), std::string::npos) << said;
}

TEST(Ledger, RepeatedLinesMustBeEqual) {
  const test::TemporaryFolder folder;
  record(folder.path(), 1, 4);
  Ledger ledger(folder.path());
  EXPECT_FALSE(ledger.record(line_of(3)));
  EXPECT_TRUE(ledger.record(line_of(5)));
  LedgerLine other = line_of(3);
  other.loss = std::nextafter(other.loss, 1.0);
  other.state.reset();
  try {
    ledger.record(other);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("step 3 was recorded before with other facts (loss, state)"),
              std::string::npos)
        << failure.what();
  }
  EXPECT_THROW(ledger.record(line_of(7)), UsageError);
}

TEST(Ledger, ForeignContentsAreRefused) {
  const test::TemporaryFolder folder;
  const auto error = [&](const std::string& text) {
    std::filesystem::remove(folder / "ledger.jsonl");
    File::append(folder / "ledger.jsonl").write(text);
    return test::message_of<Failure>([&] { Ledger(folder.path()); });
  };
  const std::string header = LedgerHeader().text() + "\n";
  EXPECT_EQ(error(header + line_of(1).text() + "\n"), "");
  EXPECT_NE(error(header + line_of(2).text() + "\n").find("line 2: it is not that of step 1"), std::string::npos);
  EXPECT_NE(error(line_of(1).text() + "\n").find("malformed header"), std::string::npos);
  EXPECT_LT(error(std::string(5000, 'x') + "\n").size(), 1000u);
  const std::string old =
      R"({"step":1,"batch":"00000000000000010000000000000002","loss":"3fe0000000000000","gradient":)";
  EXPECT_NE(error(old + "\"00000000000000020000000000000003\"}\n").find("is of version 1, and this program reads"),
            std::string::npos);
  std::string damaged = line_of(1).text() + "\n";
  damaged[12] ^= 1;
  const std::string fault = error(header + damaged);
  for (const char* part : {"ledger.jsonl, line 2", "its checksum is ", "a checkpoint of step 0 or before"})
    EXPECT_NE(fault.find(part), std::string::npos) << fault;
  std::filesystem::resize_file(folder / "ledger.jsonl", 0);
  std::filesystem::resize_file(folder / "ledger.jsonl", 0);
  File::append(folder / "ledger.jsonl").write("what is this\n");
  EXPECT_THROW(Ledger(folder.path()), Failure);
}

// Every virtual rank has its turn within some steps.
TEST(Ledger, ASampleIsOfOneVirtualRankAStep) {
  const LedgerOptions sample{LedgerOptions::Leaves::sample}, none, all{LedgerOptions::Leaves::all};
  std::vector<int> named(5);
  for (int64_t step = 0; step < 500; ++step) {
    int names = 0;
    for (int vrank = 0; vrank < 5; ++vrank) {
      EXPECT_FALSE(names_rank_gradient(none, step, vrank, 5));
      EXPECT_TRUE(names_rank_gradient(all, step, vrank, 5));
      if (!names_rank_gradient(sample, step, vrank, 5)) continue;
      ++names;
      ++named[static_cast<size_t>(vrank)];
    }
    EXPECT_EQ(names, 1) << step;
  }
  for (const int n : named) EXPECT_GT(n, 60);
  EXPECT_FALSE(names_rank_gradient(sample, 7, 0, 1)) << "the reduced gradient says as much";
  EXPECT_EQ(leaves_from("all"), LedgerOptions::Leaves::all);
  EXPECT_THROW(leaves_from("some"), UsageError);
}

TEST(Ledger, ALeafsDigestTravelsWithItsFacts) {
  RankFacts facts{.loss_sum = 0.1, .count = 2, .batch = {1, 2}};
  const auto travelled = [](const RankFacts& f) {
    return read_fields<RankFacts>(nlohmann::json::parse(write_fields(f).dump()));
  };
  EXPECT_FALSE(travelled(facts).gradient);
  facts.gradient = Digest{3, 4};
  facts.tensors = "0123456789abcdef";
  const RankFacts back = travelled(facts);
  EXPECT_EQ(back.gradient, facts.gradient);
  EXPECT_EQ(back.tensors, facts.tensors);
  const std::vector<Tensor> tensors = {Tensor::full({2}, 1), Tensor::zeros({3})};
  const TensorsDigest digested = digest_in_order(tensors);
  EXPECT_EQ(digested.tensors, digest(tensors[0]).hex().substr(0, 8) + digest(tensors[1]).hex().substr(0, 8));
}

TEST(LineFile, KeepsAndAppends) {
  const test::TemporaryFolder folder;
  LineFile file(folder / "lines");
  for (const char* line : {"one", "", "three"}) file.append(line);
  EXPECT_EQ(read_file(folder / "lines"), "");
  file.write();
  EXPECT_EQ(read_file(folder / "lines"), "one\n\nthree\n");
  file.keep(2);
  file.append("last");
  file.write();
  EXPECT_EQ(file.lines(), (std::vector<std::string>{"one", "", "last"}));
  EXPECT_EQ(read_file(folder / "lines"), "one\n\nlast\n");
  EXPECT_THROW(file.append("a\nb"), UsageError);
}

}  // namespace
}  // namespace elinvar
