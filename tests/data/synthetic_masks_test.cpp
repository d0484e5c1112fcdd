// Images with a class for each pixel.
#include "data/synthetic_masks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

TEST(SyntheticMasks, ShowTheirClassesInTheirColours) {
  const DataConfig config{.kind = "synthetic_masks", .image_size = 16, .size = 50, .classes = 3, .noise = 0};
  const auto data = open_synthetic_masks(config, Split::train), other = open_synthetic_masks(config, Split::validation);
  EXPECT_EQ(data->size(), 50);
  EXPECT_EQ(other->size(), 5);
  EXPECT_NE(digest(*data), digest(*other));
  std::vector<float> pixels(16 * 16 * 3), again = pixels;
  std::vector<int64_t> mask(16 * 16);
  std::set<std::vector<float>> colours[3];
  for (int64_t i = 0; i < 50; ++i) {
    data->read(i, {}, {pixels.data(), mask.data()});
    for (size_t p = 0; p < mask.size(); ++p) {
      ASSERT_GE(mask[p], 0);
      ASSERT_LT(mask[p], 3);
      colours[mask[p]].insert(
          {pixels.begin() + static_cast<long>(3 * p), pixels.begin() + static_cast<long>(3 * p) + 3});
    }
  }
  for (const auto& of_class : colours) EXPECT_EQ(of_class.size(), 1u) << "without noise each class has one colour";
  data->read(7, {.seed = 3, .epoch = 4, .augment = true}, {pixels.data(), mask.data()});
  data->read(7, {}, {again.data(), mask.data()});
  EXPECT_EQ(pixels, again);
}

TEST(SyntheticMasks, WhatIsWrongIsNamed) {
  const auto refusal = [](const DataConfig& config) {
    return test::message_of<UsageError>([&] { open_synthetic_masks(config, Split::train); });
  };
  EXPECT_NE(refusal({.classes = 1}).find("data.classes must be from 2 to 1000, got 1"), std::string::npos);
  EXPECT_NE(refusal({.image_size = 4}).find("data.image_size must be 0 or from 8"), std::string::npos);
  EXPECT_NE(refusal({.noise = 2}).find("data.noise"), std::string::npos);
}

}  // namespace
}  // namespace elinvar
