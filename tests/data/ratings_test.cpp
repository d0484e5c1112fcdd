// Ratings from MovieLens' files: choices, held-out choices, and the items drawn for each.
#include "data/ratings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "data/loader.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;
using test::TemporaryFolder;

struct Ranked {
  std::vector<int32_t> pairs;  // users and items
  std::vector<float> targets;
};

Ranked ranked(const Dataset& data, int64_t index, const Draw& draw = {}) {
  const SampleFormat format = data.format();
  Ranked sample;
  sample.pairs.resize(static_cast<size_t>(format.inputs.at(0).shape.numel()));
  sample.targets.resize(static_cast<size_t>(format.target.shape.numel()));
  data.read(index, draw, SampleBuffers(sample.pairs.data(), sample.targets.data()));
  return sample;
}

// User u of 6 rates items u, u + 1, .. u + 3 of 12, the last one latest; "u" and "i" stand for ids.
std::string rating_lines(const std::string& separator) {
  std::string text;
  for (int k = 3; k >= 0; --k)
    for (int u = 0; u < 6; ++u)
      text += fmt::format("{}{}{}{}{}{}{}\n", u, separator, fmt::format("{:02}", u + k), separator, 1 + k, separator,
                          900000 + 10 * k);
  for (int item = 9; item < 12; ++item) text += fmt::format("9{}{:02}{}4{}1\n", separator, item, separator, separator);
  return text;
}

DataConfig ratings_config(const std::string& path) {
  return {.kind = "ratings", .path = path, .negatives = 3, .candidates = 7};
}

TEST(Ratings, TheFormsOfMovieLensAreEqual) {
  const TemporaryFolder folder;
  const std::string dat = folder.write("ratings.dat", rating_lines("::")),
                    data = folder.write("u.data", rating_lines("\t")),
                    csv = folder.write("ratings.csv", "userId,movieId,rating,timestamp\r\n" + rating_lines(","));
  for (const Split split : {Split::train, Split::validation}) {
    const auto one = open_ratings(ratings_config(dat), split);
    EXPECT_EQ(digest(*one), digest(*open_ratings(ratings_config(data), split)));
    EXPECT_EQ(digest(*one), digest(*open_ratings(ratings_config(csv), split)));
    EXPECT_EQ(digest(*one), digest(*open_ratings(ratings_config(folder.path()), split)));
  }
}

TEST(Ratings, TheLatestChoiceOfEachUserIsHeldOut) {
  const TemporaryFolder folder;
  const DataConfig config = ratings_config(folder.write("u.data", rating_lines("\t")));
  const auto train = open_ratings(config, Split::train), validation = open_ratings(config, Split::validation);
  EXPECT_EQ(train->size(), 6 * 3 + 2);
  EXPECT_EQ(validation->size(), 7);
  EXPECT_EQ(train->format().inputs.at(0).shape, Shape({4, 2}));
  EXPECT_EQ(validation->format().inputs.at(0).shape, Shape({8, 2}));
  EXPECT_EQ(train->format().inputs.at(0).symbols, (std::vector<int64_t>{7, 12}));
  for (int64_t i = 0; i < 7; ++i) {
    const Ranked sample = ranked(*validation, i);
    EXPECT_EQ(sample.pairs[0], i);
    EXPECT_EQ(sample.pairs[1], i < 6 ? i + 3 : 11);  // of equal times the last row
    EXPECT_EQ(sample.targets, (std::vector<float>{1, 0, 0, 0, 0, 0, 0, 0}));
    std::set<int32_t> others;
    for (size_t c = 1; c < 8; ++c) {
      EXPECT_EQ(sample.pairs[2 * c], i);
      others.insert(sample.pairs[2 * c + 1]);
    }
    EXPECT_EQ(others.size(), 7u);
    for (int32_t k = 0; k < 4; ++k) EXPECT_TRUE(i >= 6 || !others.contains(static_cast<int32_t>(i) + k));
    EXPECT_EQ(sample.pairs, ranked(*validation, i, {.seed = 5, .epoch = 3}).pairs);
  }
  DataConfig fraction = config;
  fraction.validation_fraction = 0.25;
  EXPECT_EQ(open_ratings(fraction, Split::train)->size(), 15);
  EXPECT_EQ(open_ratings(fraction, Split::validation)->size(), 5);
  EXPECT_EQ(digest(*open_ratings(fraction, Split::test)), digest(*validation));
  fraction.rating_min = 3;  // k = 2 and 3, and user 9's
  fraction.validation_fraction = 0;
  EXPECT_EQ(open_ratings(fraction, Split::train)->size(), 6 + 2);
}

TEST(Ratings, NegativesAreDrawnAnewFromWhatAUserNeverChose) {
  const TemporaryFolder folder;
  const auto train = open_ratings(ratings_config(folder.write("u.data", rating_lines("\t"))), Split::train);
  std::set<int32_t> drawn;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    const Draw draw{.seed = 3, .epoch = epoch, .augment = true};
    const Ranked sample = ranked(*train, 0, draw);
    EXPECT_EQ(sample.pairs[0], 0);
    EXPECT_EQ(sample.pairs[1], 0);
    for (size_t c = 1; c < 4; ++c) drawn.insert(sample.pairs[2 * c + 1]);
    EXPECT_EQ(sample.pairs, ranked(*train, 0, draw).pairs);
  }
  EXPECT_EQ(drawn, (std::set<int32_t>{4, 5, 6, 7, 8, 9, 10, 11}));  // all but 0 to 3
  EXPECT_NE(ranked(*train, 0, {.seed = 3, .augment = true}).pairs,
            ranked(*train, 0, {.seed = 4, .augment = true}).pairs);
}

TEST(Ratings, WhatIsWrongIsNamed) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& name, const std::string& text) {
    const DataConfig config = ratings_config(folder.write(name, text));
    return message_of<Failure>([&] { open_ratings(config, Split::train); });
  };
  EXPECT_NE(refusal("a.data", "1\t2\t3\t4\n1\t3\t3\n").find("a.data', line 2: 3 fields where 4 are expected: userId"),
            std::string::npos);
  EXPECT_NE(refusal("a.dat", "1::2::3::4\n\n1::3::x::4\n").find("a.dat', line 3, column 'rating': 'x' is no number"),
            std::string::npos);
  EXPECT_NE(refusal("a.dat", "1::2::3::4.5\n").find("line 1, column 'timestamp': '4.5' is no integer"),
            std::string::npos);
  EXPECT_NE(refusal("a.dat", "::2::3::4\n").find("line 1, column 'userId': it is empty"), std::string::npos);
  EXPECT_NE(refusal("a.dat", "7::2::3::4\n7::2::3::9\n").find("line 2: user '7' has rated item '2' in line 1 already"),
            std::string::npos);
  EXPECT_NE(refusal("a.csv", "userId,movieid,rating,timestamp\n").find("no column 'movieId'; did you mean 'movieid'?"),
            std::string::npos);
  EXPECT_NE(refusal("a.csv", "userId,movieId,rating,timestamp\n1,2,3\n").find("line 2: 3 fields, but the first line"),
            std::string::npos);
  EXPECT_NE(refusal("a.csv", "").find("is empty"), std::string::npos);
  const std::string none = message_of<Failure>([&] { open_ratings(ratings_config(folder.path()), Split::train); });
  EXPECT_NE(none.find("has none of the files ratings.csv, u.data and ratings.dat"), std::string::npos);

  DataConfig many = ratings_config(folder.write("u.data", rating_lines("\t")));
  many.candidates = 9;
  EXPECT_NE(message_of<UsageError>([&] {
              open_ratings(many, Split::validation);
            }).find("data.candidates = 9 items that a user never chose are needed, but user '0' chose all but 8 of 12"),
            std::string::npos);
  many.negatives = 0;
  EXPECT_NE(message_of<UsageError>([&] { open_ratings(many, Split::train); }).find("data.negatives must be from 1"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar
