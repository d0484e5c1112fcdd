#include "comm/buckets.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

using Slices = std::vector<Slice>;

std::vector<Slices> all_of(const Buckets& buckets) {
  std::vector<Slices> all;
  for (int b = 0; b < buckets.count(); ++b) all.emplace_back(buckets.slices(b).begin(), buckets.slices(b).end());
  return all;
}

std::vector<Shape> random_shapes(std::mt19937& random, int64_t most) {
  std::vector<Shape> shapes(1 + random() % 6);
  for (Shape& shape : shapes) shape = {static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1))};
  return shapes;
}

int group_of(const BucketCuts& cuts, const Slice& slice) {
  return cuts.groups.empty() ? 0 : cuts.groups[static_cast<size_t>(slice.tensor)];
}

// Checks that the slices of all buckets, in order, are all elements of each group in order.
void expect_all_elements(const Buckets& buckets, const BucketCuts& cuts = {}) {
  std::vector<int64_t> done(buckets.shapes().size(), 0);
  std::pair<int, int> last = {0, 0};  // group and tensor
  for (int b = 0; b < buckets.count(); ++b) {
    EXPECT_FALSE(buckets.slices(b).empty());
    for (const Slice& s : buckets.slices(b)) {
      const int tensor = s.tensor;
      EXPECT_GE(std::pair(group_of(cuts, s), tensor), last);
      last = {group_of(cuts, s), tensor};
      EXPECT_EQ(s.begin, done[static_cast<size_t>(tensor)]);
      EXPECT_LT(s.begin, s.end);
      done[static_cast<size_t>(tensor)] = s.end;
      EXPECT_LE(buckets.of(tensor).first, b);
      EXPECT_GT(buckets.of(tensor).second, b);
    }
  }
  for (size_t t = 0; t < done.size(); ++t) EXPECT_EQ(done[t], buckets.shapes()[t].numel()) << "tensor " << t;
}

int64_t elements(const Buckets& buckets, int bucket) {
  int64_t n = 0;
  for (const Slice& s : buckets.slices(bucket)) n += s.numel();
  return n;
}

// Without rules for cuts, every bucket but the last is full.
TEST(Buckets, AreFilledOneAfterTheOther) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::vector<Shape> shapes = random_shapes(random, 30);
    const int64_t most = 1 + static_cast<int64_t>(random() % 12);
    std::vector<Slices> expected;
    int64_t used = most;
    for (size_t t = 0; t < shapes.size(); ++t)
      for (int64_t at = 0; at < shapes[t].numel(); ++at) {  // element by element
        const bool full = used == most;
        if (full) expected.emplace_back();
        used = full ? 1 : used + 1;
        Slices& last = expected.back();
        if (!last.empty() && last.back().tensor == static_cast<int>(t)) ++last.back().end;
        else last.push_back({static_cast<int>(t), at, at + 1});
      }
    const Buckets buckets(shapes, most);
    EXPECT_EQ(all_of(buckets), expected);
    EXPECT_EQ(all_of(Buckets(shapes, most, BucketCuts{})), expected) << "no rules";
    expect_all_elements(buckets);
  }
}

TEST(Buckets, AreCutAtMultiplesAndNeverTooLarge) {
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    const std::vector<Shape> shapes = random_shapes(random, 60);
    BucketCuts cuts{.multiple = 1 + static_cast<int64_t>(random() % 5)};
    for (size_t t = 0; i % 2 == 0 && t < shapes.size(); ++t) cuts.groups.push_back(static_cast<int>(random() % 4));
    const int64_t most = cuts.multiple * (1 + static_cast<int64_t>(random() % 4));
    const Buckets buckets(shapes, most, cuts);
    expect_all_elements(buckets, cuts);
    for (int b = 0; b < buckets.count(); ++b) {
      EXPECT_LE(elements(buckets, b), most);
      for (const Slice& s : buckets.slices(b)) {
        EXPECT_EQ(s.begin % cuts.multiple, 0) << "also where a bucket begins in the middle of a tensor";
        EXPECT_TRUE(s.end % cuts.multiple == 0 || s.end == shapes[static_cast<size_t>(s.tensor)].numel());
      }
      EXPECT_EQ(group_of(cuts, buckets.slices(b).front()), group_of(cuts, buckets.slices(b).back()));
    }
  }
}

TEST(Buckets, SmallTensorsShareABucketAndLargeOnesSpanSeveral) {
  const Buckets buckets({{3}, {0}, {2}, {11}, {1}}, 8, BucketCuts{.multiple = 4});
  EXPECT_EQ(all_of(buckets), (std::vector<Slices>{{{0, 0, 3}, {2, 0, 2}}, {{3, 0, 8}}, {{3, 8, 11}, {4, 0, 1}}}))
      << "three elements of room are less than a part of the large tensor";
  EXPECT_EQ(buckets.of(3), (std::pair{1, 3}));
  EXPECT_EQ(buckets.of(1).first, buckets.of(1).second) << "it has no elements";
  EXPECT_THROW(Buckets({{3}}, 6, BucketCuts{.multiple = 0}), UsageError);
  // A bucket of one slice may exceed the limit, because no slice is cut below the multiple.
  const Buckets small({{7}, {1}, {2}}, 2, BucketCuts{.multiple = 4});
  EXPECT_EQ(all_of(small), (std::vector<Slices>{{{0, 0, 4}}, {{0, 4, 7}}, {{1, 0, 1}}, {{2, 0, 2}}}));
  EXPECT_THROW(Buckets({{3}}, 4, BucketCuts{.multiple = 0}), UsageError);
}

// Gradients and batch statistics, say: the buckets of the former do not depend on the latter.
TEST(Buckets, OfTensorsApartAreThoseOfTheTensorsBelowAlone) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const std::vector<Shape> first = random_shapes(random, 20), then = random_shapes(random, 20);
    const Buckets alone(first, 6, BucketCuts{.multiple = 3});
    std::vector<Shape> all = first;
    all.insert(all.end(), then.begin(), then.end());
    std::vector<int> groups(first.size(), 0);
    groups.resize(all.size(), 1);
    const Buckets both(all, 6, BucketCuts{.multiple = 3, .groups = groups});
    ASSERT_EQ(both.below(static_cast<int>(first.size())), alone.count());
    const std::vector<Slices> buckets = all_of(both);
    EXPECT_EQ(std::vector<Slices>(buckets.begin(), buckets.begin() + alone.count()), all_of(alone));
  }
}

TEST(Buckets, BelowCountsThoseWithoutTheTensor) {
  const Buckets buckets({{2}, {2}, {5}}, 4);  // the third tensor begins a bucket
  EXPECT_EQ(buckets.below(0), 0);
  EXPECT_EQ(buckets.below(1), 0) << "the first two share a bucket";
  EXPECT_EQ(buckets.below(2), 1);
  EXPECT_EQ(buckets.below(3), 3);
}

TEST(Buckets, ACutSharesStorageAndFitsItsBlobs) {
  const Buckets buckets({{2, 3}, {2}}, 4, BucketCuts{.multiple = 2});
  const std::vector<Tensor> values = {Tensor::from(std::vector<float>{0, 1, 2, 3, 4, 5}, {2, 3}), Tensor::full({2}, 7)};
  const std::vector<Tensor> cut = buckets.cut(1, values);
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0].span<float>()[0], 4);
  EXPECT_EQ(std::as_const(cut[1]).raw(), std::as_const(values[1]).raw());
  const std::vector<Blob> blobs = {blob_of(cut[0]), blob_of(cut[1])};
  EXPECT_TRUE(buckets.fits(1, blobs));
  EXPECT_FALSE(buckets.fits(0, blobs));
  EXPECT_FALSE(buckets.fits(1, std::span(blobs).first(1)));
  EXPECT_THROW(buckets.cut(0, {values[0]}), UsageError);
  EXPECT_THROW(buckets.cut(0, {values[1], values[0]}), UsageError);
}

}  // namespace
}  // namespace elinvar
