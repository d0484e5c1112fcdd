#include "nn/boxes.h"

#include <algorithm>

namespace elinvar {

float intersection_over_union(const Box& a, const Box& b) {
  const auto area = [](float width, float height) { return std::max(width, 0.0f) * std::max(height, 0.0f); };
  const float both = area(std::min(a.x2, b.x2) - std::max(a.x1, b.x1), std::min(a.y2, b.y2) - std::max(a.y1, b.y1));
  const float either = (area(a.x2 - a.x1, a.y2 - a.y1) + area(b.x2 - b.x1, b.y2 - b.y1)) - both;
  return both > 0 ? both / either : 0;
}

std::vector<int64_t> non_maximum_suppression(std::span<const Detection> detections, float most_overlap, int64_t most) {
  const auto at = [&](int64_t i) -> const Detection& { return detections[static_cast<size_t>(i)]; };
  std::vector<int64_t> order;
  for (int64_t i = 0; i < std::ssize(detections); ++i)
    if (at(i).score == at(i).score) order.push_back(i);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return at(a).score > at(b).score; });
  std::vector<int64_t> kept;
  for (const int64_t i : order) {
    if (std::ssize(kept) >= most) break;
    const bool suppressed = std::ranges::any_of(kept, [&](int64_t k) {
      return at(k).label == at(i).label && intersection_over_union(at(k).box, at(i).box) > most_overlap;
    });
    if (!suppressed) kept.push_back(i);
  }
  return kept;
}

}  // namespace elinvar
