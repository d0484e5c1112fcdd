// Boxes: suppression and average precision, against searches over all possibilities.
#include "nn/boxes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "nn/average_precision.h"

namespace elinvar {
namespace {

TEST(Boxes, OverlapIsASharedArea) {
  const Box unit{0, 0, 1, 1};
  EXPECT_EQ(intersection_over_union(unit, unit), 1);
  EXPECT_EQ(intersection_over_union(unit, {0.5f, 0, 1.5f, 1}), 0.5f / 1.5f);
  EXPECT_EQ(intersection_over_union(unit, {1, 0, 2, 1}), 0);           // they touch
  EXPECT_EQ(intersection_over_union(unit, {0.5f, 0.5f, 0.5f, 1}), 0);  // no area
  EXPECT_EQ(intersection_over_union(unit, {1, 1, 0, 0}), 0);           // not a box
}

// Detections on a coarse grid, so that scores, boxes and overlaps are often equal.
std::vector<Detection> random_detections(std::mt19937& random, int64_t count) {
  std::vector<Detection> all;
  const auto below = [&](int n) { return static_cast<float>(random() % static_cast<unsigned>(n)); };
  for (int64_t i = 0; i < count; ++i) {
    const float x = below(6), y = below(6);
    all.push_back({{x, y, x + 1 + below(3), y + 1 + below(3)}, below(5) / 4, static_cast<int64_t>(below(2))});
  }
  return all;
}

// By the definition: a detection is kept unless it overlaps a kept one that comes before it. Tries all subsets.
std::vector<int64_t> suppressed_by_search(const std::vector<Detection>& all, float most_overlap) {
  const auto n = static_cast<int64_t>(all.size());
  const auto at = [&](int64_t i) -> const Detection& { return all[static_cast<size_t>(i)]; };
  const auto before = [&](int64_t a, int64_t b) {
    return at(a).score > at(b).score || (at(a).score == at(b).score && a < b);
  };
  std::vector<int64_t> found;
  int solutions = 0;
  for (int64_t subset = 0; subset < int64_t{1} << n; ++subset) {
    const auto kept = [&](int64_t i) { return (subset >> i & 1) != 0; };
    bool consistent = true;
    for (int64_t i = 0; i < n && consistent; ++i) {
      bool suppressed = false;
      for (int64_t k = 0; k < n; ++k)
        suppressed |= kept(k) && before(k, i) && at(k).label == at(i).label &&
                      intersection_over_union(at(k).box, at(i).box) > most_overlap;
      consistent = kept(i) != suppressed;
    }
    if (!consistent) continue;
    ++solutions;
    for (int64_t i = 0; i < n; ++i)
      if (kept(i)) found.push_back(i);
  }
  EXPECT_EQ(solutions, 1);
  std::ranges::sort(found, before);
  return found;
}

TEST(Boxes, SuppressionIsItsDefinition) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const std::vector<Detection> all = random_detections(random, 9);
    for (const float most_overlap : {0.0f, 0.25f, 0.5f}) {
      const std::vector<int64_t> expected = suppressed_by_search(all, most_overlap);
      EXPECT_EQ(non_maximum_suppression(all, most_overlap, 100), expected);
      const auto few = std::min<size_t>(2, expected.size());
      EXPECT_EQ(non_maximum_suppression(all, most_overlap, 2),
                std::vector(expected.begin(), expected.begin() + static_cast<long>(few)));
    }
  }
  EXPECT_TRUE(non_maximum_suppression({}, 0.5f, 10).empty());
  const std::vector<Detection> nan = {{{0, 0, 1, 1}, NAN, 0}, {{0, 0, 1, 1}, 0.5f, 0}};
  EXPECT_EQ(non_maximum_suppression(nan, 0.5f, 10), std::vector<int64_t>{1});
}

struct ScoredImage {
  std::vector<Detection> found;  // in descending order of scores
  std::vector<LabelledBox> boxes;
};

std::vector<ScoredImage> random_images(std::mt19937& random, int count) {
  std::vector<ScoredImage> images(static_cast<size_t>(count));
  for (ScoredImage& image : images) {
    image.found = random_detections(random, 6);
    std::ranges::stable_sort(image.found, std::ranges::greater(), &Detection::score);
    for (const Detection& d : random_detections(random, 3)) image.boxes.push_back({d.box, d.label});
  }
  return images;
}

// The mean average precision at one threshold, by its definition: no counts are kept, each precision and recall is
// found from all detections anew.
double precision_by_search(const std::vector<ScoredImage>& images, double threshold) {
  double sum = 0;
  int labels = 0;
  for (int64_t label = 0; label < 2; ++label) {
    struct Judged {
      float score;
      bool right;
    };
    std::vector<Judged> judged;
    std::set<float> scores;
    int64_t boxes = 0;
    for (const ScoredImage& image : images) {
      std::vector<Box> left;
      for (const LabelledBox& b : image.boxes)
        if (b.label == label) left.push_back(b.box);
      boxes += std::ssize(left);
      for (const Detection& d : image.found) {
        if (d.label != label) continue;
        const auto best =
            std::ranges::max_element(left, {}, [&](const Box& b) { return intersection_over_union(b, d.box); });
        const bool right = best != left.end() && intersection_over_union(*best, d.box) >= threshold;
        if (right) left.erase(best);
        judged.push_back({d.score, right});
        scores.insert(d.score);
      }
    }
    if (boxes == 0) continue;
    ++labels;
    for (int percent = 0; percent <= 100; ++percent) {
      double highest = 0;
      for (const float least : scores) {
        double right = 0, all = 0;
        for (const Judged& j : judged) {
          all += j.score >= least;
          right += j.score >= least && j.right;
        }
        if (right * 100 >= percent * static_cast<double>(boxes)) highest = std::max(highest, right / all);
      }
      sum += highest / 101;
    }
  }
  return labels > 0 ? sum / labels : 0;
}

TEST(AveragePrecision, IsItsDefinitionInAnyOrderOfImages) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<ScoredImage> images = random_images(random, 1 + trial % 5);
    std::map<int64_t, int64_t> tallies;
    for (const ScoredImage& image : images) tally_detections(image.found, image.boxes, tallies);
    const auto found = average_precision(tallies);
    for (int t = 0; t < kOverlapThresholds; ++t)
      EXPECT_NEAR(found[static_cast<size_t>(t)], precision_by_search(images, (50 + 5 * t) / 100.0), 1e-12)
          << t;  // sums in another order
    // The same bits for another order, in two parts.
    std::ranges::reverse(images);
    std::map<int64_t, int64_t> parts[2];
    for (size_t i = 0; i < images.size(); ++i) tally_detections(images[i].found, images[i].boxes, parts[i % 2]);
    for (const auto& [key, number] : parts[0]) parts[1][key] += number;
    EXPECT_EQ(average_precision(parts[1]), found);
  }
}

TEST(AveragePrecision, KnownCases) {
  const Box here{0, 0, 1, 1}, there{3, 3, 4, 4};
  const auto at_half = [](const std::vector<Detection>& found, const std::vector<LabelledBox>& boxes) {
    std::map<int64_t, int64_t> tallies;
    tally_detections(found, boxes, tallies);
    return average_precision(tallies)[0];
  };
  EXPECT_EQ(at_half({}, {}), 0);
  EXPECT_EQ(at_half({{here, 0.5f, 0}}, {}), 0);
  EXPECT_DOUBLE_EQ(at_half({{here, 0.9f, 3}}, {{here, 3}}), 1);
  EXPECT_EQ(at_half({{here, 0.9f, 2}}, {{here, 3}}), 0);
  EXPECT_DOUBLE_EQ(at_half({{here, 0.9f, 0}}, {{here, 0}, {there, 0}}), 51 / 101.0);  // recalls up to 0.5
  EXPECT_DOUBLE_EQ(at_half({{there, 0.9f, 0}, {here, 0.8f, 0}}, {{here, 0}}), 0.5);
  EXPECT_DOUBLE_EQ(at_half({{there, 0.8f, 0}, {here, 0.8f, 0}}, {{here, 0}}), 0.5);
  EXPECT_DOUBLE_EQ(at_half({{here, 0.9f, 0}, {here, 0.8f, 0}}, {{here, 0}}), 1);  // the second is wrong, but later
  EXPECT_DOUBLE_EQ(at_half({{here, 0.0f, 0}}, {{here, 0}}), 1);
  EXPECT_DOUBLE_EQ(at_half({{here, 0.9f, kMostLabels - 1}}, {{here, kMostLabels - 1}}), 1);
}

}  // namespace
}  // namespace elinvar
