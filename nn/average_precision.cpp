#include "nn/average_precision.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace elinvar {
namespace {

// A key is -1 - label for boxes. For detections it has the label, the bits of the score, whose order is that of the
// scores, and for each threshold whether the detection is right.
constexpr int kScoreBits = 31;
static_assert((kMostLabels << (kScoreBits + kOverlapThresholds)) > 0);

int64_t key_of_detection(int64_t label, float score, int64_t right) {
  const auto bits = static_cast<int64_t>(std::bit_cast<uint32_t>(score + 0.0f));  // -0 becomes +0
  return (label << kScoreBits | bits) << kOverlapThresholds | right;
}

double overlap_threshold(int t) { return (50 + 5 * t) / 100.0; }

// The detections of a label, from the highest score down, of which points of the curve are made.
class PrecisionCurve {
 public:
  explicit PrecisionCurve(int64_t boxes) : boxes_(boxes) {}

  void add(int64_t right, int64_t all) { points_.push_back({right, all}); }

  double average() const {
    std::vector<double> highest(points_.size() + 1, 0.0);  // precision at this point or a later one
    for (size_t i = points_.size(); i-- > 0;)
      highest[i] =
          std::max(highest[i + 1], static_cast<double>(points_[i].right) / static_cast<double>(points_[i].all));
    double sum = 0;
    size_t first = 0;
    for (int64_t percent = 0; percent <= 100; ++percent) {
      while (first < points_.size() && 100 * points_[first].right < percent * boxes_) ++first;
      sum += highest[first];
    }
    return sum / 101;
  }

 private:
  struct Point {
    int64_t right, all;
  };
  int64_t boxes_;
  std::vector<Point> points_;
};

}  // namespace

void tally_detections(std::span<const Detection> found, std::span<const LabelledBox> boxes,
                      std::map<int64_t, int64_t>& tallies) {
  for (const LabelledBox& box : boxes) ++tallies[-1 - box.label];
  std::array<std::vector<bool>, kOverlapThresholds> taken;
  taken.fill(std::vector<bool>(boxes.size()));
  for (const Detection& detection : found) {
    std::vector<float> overlaps;
    for (const LabelledBox& box : boxes)
      overlaps.push_back(box.label == detection.label ? intersection_over_union(box.box, detection.box) : 0);
    int64_t right = 0;
    for (int t = 0; t < kOverlapThresholds; ++t) {
      std::vector<bool>& of_threshold = taken[static_cast<size_t>(t)];
      size_t best = boxes.size();
      for (size_t b = 0; b < boxes.size(); ++b)
        if (!of_threshold[b] && overlaps[b] >= overlap_threshold(t) &&
            (best == boxes.size() || overlaps[b] > overlaps[best]))
          best = b;
      if (best == boxes.size()) continue;
      of_threshold[best] = true;
      right |= int64_t{1} << t;
    }
    ++tallies[key_of_detection(detection.label, detection.score, right)];
  }
}

std::array<double, kOverlapThresholds> average_precision(const std::map<int64_t, int64_t>& tallies) {
  std::array<double, kOverlapThresholds> means = {};
  int64_t labels = 0;
  for (auto box = tallies.begin(); box != tallies.end() && box->first < 0; ++box) {
    const int64_t label = -1 - box->first;
    std::array<int64_t, kOverlapThresholds> right = {};
    int64_t all = 0;
    std::vector<PrecisionCurve> curves(kOverlapThresholds, PrecisionCurve(box->second));
    const auto first = tallies.lower_bound(key_of_detection(label, 0, 0));
    auto next = tallies.lower_bound(key_of_detection(label + 1, 0, 0));
    while (next != first) {
      const auto [key, number] = *--next;
      all += number;
      for (size_t t = 0; t < right.size(); ++t) right[t] += (key >> t & 1) * number;
      const bool last_of_score =
          next == first || std::prev(next)->first >> kOverlapThresholds != key >> kOverlapThresholds;
      if (!last_of_score) continue;
      for (size_t t = 0; t < right.size(); ++t) curves[t].add(right[t], all);
    }
    for (size_t t = 0; t < right.size(); ++t) means[t] += curves[t].average();
    ++labels;
  }
  for (double& mean : means) mean /= static_cast<double>(std::max<int64_t>(labels, 1));
  return means;
}

}  // namespace elinvar
