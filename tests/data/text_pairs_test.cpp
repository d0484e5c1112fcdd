// Pairs of texts, of files and synthetic.
#include "data/text_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/masked_tokens.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;
using test::TemporaryFolder;

struct PairSample {
  std::vector<int32_t> source, shifted;
  int32_t length = 0;
  std::vector<int64_t> targets;
  bool operator==(const PairSample&) const = default;
};

PairSample pair_sample(const Dataset& data, int64_t index, const Draw& draw = {}) {
  const SampleFormat format = data.format();
  const auto extent = [](const Field& field) { return static_cast<size_t>(field.shape.numel()); };
  PairSample sample{.source = std::vector<int32_t>(extent(format.inputs[0])),
                    .shifted = std::vector<int32_t>(extent(format.inputs[1])),
                    .targets = std::vector<int64_t>(extent(format.target))};
  data.read(index, draw, {{sample.source.data(), sample.shifted.data(), &sample.length}, sample.targets.data()});
  return sample;
}

DataConfig pairs_in(const std::string& path) {
  return {.kind = "text_pairs",
          .path = path,
          .tokens = "character",
          .context = 5,
          .text = "de",
          .target_context = 4,
          .target = {"en"}};
}

TEST(TextPairs, AreShiftedAndPadded) {
  const TemporaryFolder folder;
  folder.write("set/train.csv", "en,de\na,bc\ncabcb,abcabc\n");
  folder.write("set/val.jsonl", "{\"en\": \"abc\", \"de\": \"abcd\"}\n");
  const auto training = open_dataset(pairs_in(folder.path() + "/set"), Split::train),
             validation = open_dataset(pairs_in(folder.path() + "/set"), Split::validation);
  // Characters of both sides of all files are 0 to 3; the end is 4, the start 5.
  constexpr int64_t kNone = kIgnoredTarget;
  EXPECT_EQ(training->size(), 2);
  EXPECT_EQ(training->classes(), 6);
  EXPECT_EQ(training->format().inputs[1].symbols, std::vector<int64_t>{6});
  EXPECT_EQ(training->format().inputs[2].symbols, std::vector<int64_t>{6}) << "lengths of 1 to 5";
  EXPECT_EQ(pair_sample(*training, 0), (PairSample{{1, 2, 4, 0, 0}, {5, 0, 0, 0}, 3, {0, 4, kNone, kNone}}));
  EXPECT_EQ(pair_sample(*training, 1), (PairSample{{0, 1, 2, 0, 1}, {5, 2, 0, 1}, 5, {2, 0, 1, 2}})) << "cut";
  EXPECT_EQ(pair_sample(*validation, 0), (PairSample{{0, 1, 2, 3, 4}, {5, 0, 1, 2}, 5, {0, 1, 2, 4}})) << "just fit";
  EXPECT_NE(digest(*training), digest(*validation));
}

TEST(TextPairs, AreHeldOutOfOneFile) {
  const TemporaryFolder folder;
  std::string rows = "{\"de\": 1, \"en\": \"x\"}\n";
  for (int i = 0; i < 9; ++i) rows += fmt::format("{{\"de\": \"{}\", \"en\": \"{}\"}}\n", i, i + 10);
  DataConfig config = pairs_in(folder.write("pairs.jsonl", rows));
  config.tokens = "byte";
  config.target_context = 0;
  const auto training = open_dataset(config, Split::train);
  EXPECT_EQ(training->size(), 9);
  EXPECT_EQ(open_dataset(config, Split::validation)->size(), 1);
  EXPECT_EQ(training->classes(), 258);
  EXPECT_EQ(training->target_shape(), Shape{5}) << "as long as the source";
}

TEST(TextPairs, WhatIsWrongIsNamed) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& name, const std::string& text) {
    return message_of<std::exception>([&] { open_dataset(pairs_in(folder.write(name, text)), Split::train); });
  };
  EXPECT_NE(refusal("bad.csv", "de,en\na,b\nc,\n").find("bad.csv', line 3: 'en' is empty"), std::string::npos);
  EXPECT_NE(refusal("bad.csv", "de,eng\na,b\n").find("data.target names 'en', which is no column"), std::string::npos);
  EXPECT_NE(refusal("bad.csv", "de;en\na;b\n").find("names the columns de;en (commas divide fields, in a .tsv tabs)"),
            std::string::npos);
  EXPECT_NE(refusal("bad.jsonl", "{\"de\": \"a\"}\n").find("line 1: the object has no 'en'"), std::string::npos);
  DataConfig config = pairs_in(folder.write("pairs.csv", "de,en\na,b\n"));
  config.target = {};
  const auto message = [&] { return message_of<UsageError>([&] { open_dataset(config, Split::train); }); };
  EXPECT_NE(message().find("data.target must name the one field"), std::string::npos);
  config = pairs_in(folder.path());
  config.target_context = -1;
  EXPECT_NE(message().find("data.target_context must be from 0"), std::string::npos);
}

TEST(SyntheticPairs, AreLettersAndTheSameSorted) {
  const DataConfig config{.kind = "synthetic_pairs", .context = 7, .size = 300, .classes = 3};
  const auto data = open_dataset(config, Split::train), validation = open_dataset(config, Split::validation);
  EXPECT_EQ(data->size(), 300);
  EXPECT_EQ(validation->size(), 30);
  std::vector<int> lengths(8), letters(3);
  for (int64_t i = 0; i < data->size(); ++i) {
    const PairSample sample = pair_sample(*data, i);
    EXPECT_EQ(sample, pair_sample(*data, i, {.seed = 5, .epoch = 2, .augment = true}));
    const auto count = sample.length - 1;
    ++lengths[static_cast<size_t>(sample.length)];
    std::vector<int32_t> sorted(sample.source.begin(), sample.source.begin() + count);
    for (const int32_t letter : sorted) ++letters.at(static_cast<size_t>(letter));
    std::ranges::sort(sorted);
    EXPECT_EQ(sample.source[static_cast<size_t>(count)], 3) << "the end";
    EXPECT_TRUE(std::equal(sorted.begin(), sorted.end(), sample.targets.begin()));
    EXPECT_EQ(sample.targets[static_cast<size_t>(count)], 3);
    EXPECT_TRUE(std::equal(sorted.begin(), sorted.end(), sample.shifted.begin() + 1));
  }
  for (size_t length = 2; length < 8; ++length) EXPECT_GT(lengths[length], 25) << "50 are expected";
  for (const int count : letters) EXPECT_GT(count, 280) << "350 are expected";
  EXPECT_NE(pair_sample(*data, 0), pair_sample(*validation, 0));
  EXPECT_EQ(message_of<UsageError>([] { open_dataset({.kind = "synthetic_pairs", .classes = 1}, Split::train); }),
            "data.classes must be from 2 to 26, got 1");
}

}  // namespace
}  // namespace elinvar
