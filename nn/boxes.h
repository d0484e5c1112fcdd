#pragma once
// Boxes in images, and which of the boxes that a network finds remain.
#include <cstdint>
#include <span>
#include <vector>

namespace elinvar {

// Left, top, right and bottom, in any unit.
struct Box {
  float x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};

// The area that both cover as a share of the area that either covers; 0 if one is empty. In float32: widths and heights
// are differences, at least 0, and the result is both / ((a + b) - both).
float intersection_over_union(const Box& a, const Box& b);

struct Detection {
  Box box;
  float score = 0;
  int64_t label = 0;
};

// Non-maximum suppression: goes through the detections in descending order of their scores, and of equal ones in
// ascending order of their indices. Keeps a detection unless its intersection over union with one of the same label
// that was kept before is above `most_overlap`. Returns the indices of the first `most` that are kept, in that order.
// Those whose score is NaN are left out.
std::vector<int64_t> non_maximum_suppression(std::span<const Detection> detections, float most_overlap, int64_t most);

}  // namespace elinvar
