#pragma once
// Average precision of detections, as COCO defines it (T.-Y. Lin et al., "Microsoft COCO: Common Objects in Context",
// ECCV 2014), from numbers of things that are counted image by image. Counts are integers, so the result is the same
// for any division of the images into batches, virtual ranks and workers.
//
// Thresholds are 0.5, 0.55, .., 0.95. At each one the detections of an image, in descending order of their scores, take
// the box of their label that overlaps them most, is not taken yet, and whose intersection over union with them is at
// least the threshold; of equal ones the first. A detection that takes a box is right.
//
// Over all images, detections of a label with scores from s on have the precision right / all and the recall right /
// boxes. Detections with equal scores count together. The average precision is the mean, over the recalls 0, 0.01, ..,
// 1, of the highest precision at that recall or above, 0 where it is not reached. Scores are never rounded. Its mean
// over labels leaves out those without boxes.
//
// Differences from COCO's program: crowds are no boxes, equal scores count together, and of boxes that overlap equally
// the first is taken.
#include <array>
#include <cstdint>
#include <map>
#include <span>

#include "nn/boxes.h"

namespace elinvar {

inline constexpr int kOverlapThresholds = 10;
inline constexpr int64_t kMostLabels = int64_t{1} << 20;

struct LabelledBox {
  Box box;
  int64_t label = 0;
};

// Adds to `tallies` what an image contributes. `found` must be in descending order of scores, which must not be
// negative; labels are below kMostLabels. Keys are those of average_precision().
void tally_detections(std::span<const Detection> found, std::span<const LabelledBox> boxes,
                      std::map<int64_t, int64_t>& tallies);

// Returns the mean over labels of the average precision at each threshold; zeros without boxes.
std::array<double, kOverlapThresholds> average_precision(const std::map<int64_t, int64_t>& tallies);

}  // namespace elinvar
