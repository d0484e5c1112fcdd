#pragma once
// Turns an image with boxes into the square that a network sees, and its boxes into targets. The image keeps its
// aspect: its longer side is scaled to the square's (data/resize.h), the shorter one by the same factor to the nearest
// pixel, at least one. The image is in the middle, rounded up and to the left, and the other pixels are grey (128).
// `flip` mirrors training squares and their boxes left and right with probability 1/2; then the colour jitter of
// data/color_jitter.h applies. Values are those of data/pixel_values.h.
//
// Targets are rows of (label, centre x, centre y, width, height) in float32, in the order of the boxes. Numbers are
// shares of the square's sides, computed in binary64. Rows without a box are (-1, 0, 0, 0, 0).
//
// Random words are philox(seed ^ key_of("data.letterbox"), epoch, index low, index high, block): the lowest bit of
// block 0 is the flip, blocks 1 and 2 are the amounts and the order of colour jitter.
#include <span>

#include "data/color_jitter.h"
#include "data/dataset.h"
#include "data/pixel_values.h"

namespace elinvar {

inline constexpr int64_t kBoxTargetNumbers = 5;
inline constexpr int64_t kMostBoxesOfSample = 10000;

class Letterbox {
 public:
  // Throws SettingError for invalid settings, and for those of other augmentations.
  Letterbox(const DataConfig& config, const PixelStatistics& usual);

  int64_t side() const { return side_; }
  // Writes (side, side, 3) and (`rows`, kBoxTargetNumbers). There must be at most `rows` boxes.
  void operator()(const ImageView& image, std::span<const ImageBox> boxes, int64_t index, const Draw& draw,
                  float* pixels, float* targets, int64_t rows) const;
  // Returns the part of an image of this size, not mirrored, that a box in the square covers. The box is in shares of
  // the square's sides.
  ImageBox in_image(const ImageBox& box, int64_t height, int64_t width) const;
  void describe(Hasher& hasher) const;

 private:
  // The place of an image in the square, and its scale.
  struct Placement {
    int64_t top = 0, left = 0, height = 0, width = 0;
    double across = 1, down = 1;
  };
  Placement placement(int64_t height, int64_t width) const;

  int64_t side_;
  bool flip_;
  ColorJitter jitter_;
  PixelValues values_;
};

// Writes one target for each box, and rows without one after them.
void write_box_targets(std::span<const ImageBox> boxes, double side, float* targets, int64_t rows);

// Refuses augmentations of images, except flips and colour jitter if these are allowed.
void refuse_augmentation_of_labels(const DataConfig& config, bool flips_and_colours);

}  // namespace elinvar
