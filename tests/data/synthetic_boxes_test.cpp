// Images of shapes with a box for each.
#include "data/synthetic_boxes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

constexpr int64_t kShapesSide = 32, kShapesRows = 5;

// All pixels of a shape's colour are in its box, and it touches all four sides, if there is no noise.
TEST(SyntheticBoxes, BoxesTouchTheirShapes) {
  const DataConfig config{
      .kind = "synthetic_boxes", .image_size = kShapesSide, .boxes = kShapesRows, .size = 60, .classes = 6, .noise = 0};
  const auto data = open_synthetic_boxes(config, Split::train), other = open_synthetic_boxes(config, Split::validation);
  EXPECT_EQ(data->size(), 60);
  EXPECT_EQ(other->size(), 6);
  EXPECT_NE(digest(*data), digest(*other));
  std::vector<float> pixels(kShapesSide * kShapesSide * 3), targets(kShapesRows * 5);
  std::map<int64_t, int64_t> labels;
  for (int64_t index = 0; index < 60; ++index) {
    data->read(index, {}, {pixels.data(), targets.data()});
    int64_t coloured = 0, in_boxes = 0;
    const auto shown = [&](int64_t y, int64_t x) {
      const float* const p = pixels.data() + (y * kShapesSide + x) * 3;
      return p[0] != 0 || p[1] != 0 || p[2] != 0;
    };
    for (int64_t at = 0; at < kShapesSide * kShapesSide; ++at) coloured += shown(at / kShapesSide, at % kShapesSide);
    for (int64_t i = 0; i < kShapesRows; ++i) {
      const float* const t = targets.data() + 5 * i;
      if (t[0] < 0) continue;
      ++labels[static_cast<int64_t>(t[0])];
      const auto pixel = [](float share) { return std::lround(share * kShapesSide); };
      const int64_t x1 = pixel(t[1] - t[3] / 2), x2 = pixel(t[1] + t[3] / 2), y1 = pixel(t[2] - t[4] / 2),
                    y2 = pixel(t[2] + t[4] / 2);
      int64_t top = 0, bottom = 0, left = 0, right = 0;
      for (int64_t y = y1; y < y2; ++y)
        for (int64_t x = x1; x < x2; ++x) {
          if (!shown(y, x)) continue;
          ++in_boxes;
          top += y == y1;
          bottom += y == y2 - 1;
          left += x == x1;
          right += x == x2 - 1;
        }
      EXPECT_TRUE(top > 0 && bottom > 0 && left > 0 && right > 0) << index << ", box " << i << " of class " << t[0];
    }
    EXPECT_GT(in_boxes, 0);
    EXPECT_EQ(in_boxes, coloured) << index;
  }
  EXPECT_EQ(labels.size(), 6u);
  std::vector<float> again = pixels;
  data->read(59, {.seed = 3, .epoch = 4, .augment = true}, {again.data(), targets.data()});
  EXPECT_EQ(pixels, again);
}

TEST(SyntheticBoxes, WhatIsWrongIsNamed) {
  const auto refusal = [](const DataConfig& config) {
    return test::message_of<UsageError>([&] { open_synthetic_boxes(config, Split::train); });
  };
  EXPECT_NE(refusal({.classes = 0}).find("data.classes must be from 1 to 1000, got 0"), std::string::npos);
  EXPECT_NE(refusal({.image_size = 8}).find("data.image_size must be 0 or from 16"), std::string::npos);
  EXPECT_NE(refusal({.boxes = 3}).find("data.boxes must be from 4"), std::string::npos);
  EXPECT_NE(refusal({.channels = 1}).find("data.channels must be 3"), std::string::npos);
  EXPECT_NE(refusal({.kind = "synthetic_boxes", .flip = true}).find("data.flip does not apply to data of kind"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar
