// Masked tokens, and texts with labels.
#include "data/masked_tokens.h"

#include <gtest/gtest.h>

#include "data/labelled_text.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;
using test::TemporaryFolder;

struct Window {
  std::vector<int32_t> tokens;
  std::vector<int64_t> targets;
  bool operator==(const Window&) const = default;
};

Window masked_window(const Dataset& data, int64_t index, const Draw& draw = {}) {
  const auto n = static_cast<size_t>(data.input_shape().numel());
  Window w{std::vector<int32_t>(n), std::vector<int64_t>(n)};
  data.read(index, draw, {w.tokens.data(), w.targets.data()});
  return w;
}

DataConfig additions(double masking) {
  return {.kind = "synthetic_text", .masking = masking, .context = 64, .size = 4000};
}

TEST(MaskedTokens, AreChosenAndChangedAsOftenAsTheyShould) {
  const auto plain = open_dataset(additions(0), Split::train), masked = open_dataset(additions(0.15), Split::train);
  ASSERT_EQ(plain->size(), masked->size());
  EXPECT_EQ(masked->classes(), 257);
  EXPECT_NE(digest(*plain), digest(*masked));
  int64_t all = 0, chosen = 0, masks = 0, others = 0;
  for (int64_t i = 0; i < plain->size(); ++i) {
    const Draw draw{.seed = 5, .epoch = 2, .augment = true};
    const Window text = masked_window(*plain, i, draw), w = masked_window(*masked, i, draw);
    for (size_t t = 0; t < 64; ++t, ++all) {
      if (w.targets[t] == kIgnoredTarget) {
        EXPECT_EQ(w.tokens[t], text.tokens[t]);
        continue;
      }
      ++chosen;
      EXPECT_EQ(w.targets[t], text.tokens[t]) << "the token itself, not the next one";
      masks += w.tokens[t] == 256;
      others += w.tokens[t] != 256 && w.tokens[t] != text.tokens[t];
    }
  }
  const auto share = [](int64_t part, int64_t of) { return static_cast<double>(part) / static_cast<double>(of); };
  EXPECT_GT(all, 20000);
  EXPECT_NEAR(share(chosen, all), 0.15, 0.01);   // four deviations are 0.01
  EXPECT_NEAR(share(masks, chosen), 0.8, 0.03);  // as above, of the chosen ones
  EXPECT_NEAR(share(others, chosen), 0.1, 0.025);
}

TEST(MaskedTokens, DependOnSeedAndEpochOnlyInTraining) {
  const auto data = open_dataset(additions(0.15), Split::train);
  const auto with = [&](uint64_t seed, int64_t epoch, bool augment) {
    return masked_window(*data, 3, {.seed = seed, .epoch = epoch, .augment = augment});
  };
  EXPECT_EQ(with(1, 0, true), with(1, 0, true));
  EXPECT_NE(with(1, 0, true), with(2, 0, true));
  EXPECT_NE(with(1, 0, true), with(1, 1, true));
  EXPECT_EQ(with(1, 0, false), with(2, 7, false));
}

std::string reviews() {
  std::string text = "{\"text\": \"good\", \"stars\": 5, \"place\": \"here\"}\n\n";
  for (int i = 0; i < 11; ++i)
    text += fmt::format("{{\"stars\": {}, \"text\": \"{}\"}}\n", i % 2 ? 1 : 5,
                        std::string(static_cast<size_t>(i + 1), 'a'));
  return text;
}

DataConfig reviews_in(const std::string& path) {
  return {.kind = "labelled_text", .path = path, .context = 8, .target = {"stars"}};
}

TEST(LabelledText, HasTokensLengthsAndLabels) {
  const TemporaryFolder folder;
  const auto data = open_labelled_text(reviews_in(folder.write("reviews.jsonl", reviews())), Split::train);
  EXPECT_EQ(data->size(), 11);
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"1", "5"}));
  EXPECT_EQ(data->format().inputs[0].symbols, std::vector<int64_t>{257});
  int64_t seen = 0;
  for (int64_t i = 0; i < data->size(); ++i) {
    std::vector<int32_t> tokens(8);
    int32_t length = 0;
    int64_t label = -1;
    data->read(i, {}, {{tokens.data(), &length}, &label});
    EXPECT_EQ(tokens[0], 256);
    if (tokens[1] != 'a') continue;
    ++seen;
    for (int t = 1; t < 8; ++t) EXPECT_EQ(tokens[static_cast<size_t>(t)], t < length ? 'a' : 0);
    if (length < 8) {
      EXPECT_EQ(label, length % 2 == 0) << "texts of an odd number of letters have five stars";
    }
  }
  EXPECT_GE(seen, 10);
}

TEST(LabelledText, ReadsTablesToo) {
  const TemporaryFolder folder;
  DataConfig config = reviews_in(folder.write("set/train.csv", "said,stars\n\"yes, it is\",good\nno,bad\n"));
  folder.write("set/val.csv", "stars,said\nbad,never\n");
  config.path = folder.path() + "/set";
  config.text = "said";
  config.tokens = "character";
  EXPECT_EQ(open_labelled_text(config, Split::train)->size(), 2);
  const auto validation = open_labelled_text(config, Split::validation);
  int32_t length = 0;
  int64_t label = -1;
  std::vector<int32_t> tokens(8);
  validation->read(0, {}, {{tokens.data(), &length}, &label});
  EXPECT_EQ(length, 6);
  EXPECT_EQ(label, 0);
}

TEST(LabelledText, WhatIsWrongIsNamed) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text, const std::string& name = "bad.jsonl") {
    return message_of<std::exception>([&] { open_labelled_text(reviews_in(folder.write(name, text)), Split::train); });
  };
  EXPECT_NE(refusal("{\"text\": \"a\", \"stars\": 1}\n{\"text\": \"b\"}\n").find("line 2: the object has no 'stars'"),
            std::string::npos);
  EXPECT_NE(refusal("{\"text\": \"\", \"stars\": 1}\n").find("line 1: the text is empty"), std::string::npos);
  EXPECT_NE(refusal("[1]\n").find("line 1: expected a JSON object"), std::string::npos);
  EXPECT_NE(refusal("{\"text\": 1.5, \"stars\": 1}\n").find("'text' must be text or an integer"), std::string::npos);
  EXPECT_NE(refusal("txt,stars\na,1\n", "bad.csv").find("did you mean 'txt'"), std::string::npos);
  EXPECT_NE(refusal("text,stars\na\n", "bad.csv").find("line 2: 1 fields, but the first line names 2"),
            std::string::npos);
  DataConfig config = reviews_in(folder.write("reviews.jsonl", reviews()));
  config.target = {};
  EXPECT_NE(message_of<UsageError>([&] { open_labelled_text(config, Split::train); }).find("data.target must name"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar
