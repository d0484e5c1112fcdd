#include "elastic/protocol/gradient_layout.h"

#include <gtest/gtest.h>

#include "tests/elastic/tensor_parts.h"

namespace elinvar {
namespace {

using test::parts_of_shards;

TEST(GradientLayout, IsLearnedFromTheFirstRankGradientWithSamples) {
  GradientLayout layout(/*bucket_elements=*/3);
  EXPECT_FALSE(layout.learn({})) << "a virtual rank without samples has no tensors";
  EXPECT_FALSE(layout.known());
  EXPECT_EQ(layout.buckets(), nullptr);
  EXPECT_EQ(layout.bucket_count(), 0);
  const RankGradient gradient{.gradients = {Tensor::zeros({4}), Tensor::zeros({2})},
                              .batch_statistics = {Tensor::zeros({1})}};
  EXPECT_TRUE(layout.learn(gradient));
  EXPECT_FALSE(layout.learn({.gradients = {Tensor::zeros({9})}})) << "it is known";
  EXPECT_TRUE(layout.known());
  EXPECT_EQ(layout.gradients(), 2);
  EXPECT_EQ(layout.buckets()->shapes().size(), 3u);
  EXPECT_EQ(layout.bucket_count(), 3) << "the first tensor is cut";
  EXPECT_EQ(layout.whole_buckets().count(), 2);
}

// Returns the tensors of each bucket.
std::vector<std::vector<int>> tensors_in(const Buckets& buckets) {
  std::vector<std::vector<int>> tensors;
  for (int b = 0; b < buckets.count(); ++b) {
    tensors.emplace_back();
    for (const Slice& slice : buckets.slices(b)) tensors.back().push_back(slice.tensor);
  }
  return tensors;
}

// Gradients of two virtual shards, of what is not cut, and batch statistics.
RankGradient gradient_of_shards() {
  RankGradient gradient{.batch_statistics = {Tensor::zeros({1})}};
  for (const int64_t elements : {2, 1, 1, 1, 2}) gradient.gradients.push_back(Tensor::zeros({elements}));
  return gradient;
}
const std::vector<int> kShardsOfGradients = {1, -1, 0, -1, 0};

TEST(GradientLayout, WithTensorParallelismABucketIsOfOneShard) {
  GradientLayout layout(/*bucket_elements=*/3, {}, parts_of_shards(kShardsOfGradients));
  EXPECT_TRUE(layout.learn(gradient_of_shards()));
  EXPECT_EQ(tensors_in(*layout.buckets()), (std::vector<std::vector<int>>{{1, 3}, {2, 4}, {0}, {5}}));
  for (const int t : {0, 1, 2, 3, 4}) EXPECT_EQ(layout.part(t).shard, kShardsOfGradients[static_cast<size_t>(t)]);
  EXPECT_EQ(layout.part(5).shard, -1) << "all have the batch statistics";
  GradientLayout whole(3);
  EXPECT_EQ(whole.part(0).shard, -1);
}

TEST(GradientLayout, WithZeroAndTensorParallelismBatchStatisticsComeLast) {
  const std::vector<Shape> parameters = {{2}, {1}, {1}, {1}, {2}};
  GradientLayout layout(3, ShardOptions{.parameters = parameters}, parts_of_shards(kShardsOfGradients));
  EXPECT_EQ(layout.shards(), 7) << "buckets of one element";
  EXPECT_EQ(tensors_in(layout.shard_buckets()), (std::vector<std::vector<int>>{{1}, {3}, {2}, {4}, {4}, {0}, {0}}));
  EXPECT_TRUE(layout.learn(gradient_of_shards()));
  EXPECT_EQ(layout.bucket_count(), 8);
  EXPECT_EQ(layout.buckets()->slices(7)[0].tensor, 5);
}

// The rows of a table are cut otherwise than the places of its gradient, and come after dense parameters.
TEST(GradientLayout, SparseTablesHaveBucketsOfTheirOwn) {
  const ShardOptions options{.multiple = 1, .parameters = {{6, 2}, {3}, {4, 1}}, .tables = {{0, 4}, {2, 3}}};
  GradientLayout layout(/*bucket_elements=*/1, options);
  EXPECT_EQ(tensors_in(layout.shard_buckets()),
            (std::vector<std::vector<int>>{{1}, {1}, {1}, {0}, {0}, {0}, {2}, {2}}));
  EXPECT_EQ(layout.shard_buckets().slices(4)[0], (Slice{0, 4, 8}));
  EXPECT_EQ(layout.shard_buckets().slices(7)[0], (Slice{2, 3, 4}));
  EXPECT_TRUE(layout.learn({.gradients = {Tensor::zeros({2, 2}), Tensor::zeros({3}), Tensor::zeros({1, 1})},
                            .batch_statistics = {Tensor::zeros({1})}}));
  EXPECT_EQ(layout.shards(), 8);
  EXPECT_EQ(layout.gradient_shards(), 8) << "of three, four and one elements";
  EXPECT_EQ(tensors_in(*layout.buckets()),
            (std::vector<std::vector<int>>{{1}, {1}, {1}, {0}, {0}, {0}, {0}, {2}, {3}}));
  for (int b = 0; b < 8; ++b) EXPECT_EQ(layout.of_table(b), b > 2);
  const auto fits = [&](int bucket, std::vector<size_t> bytes) {
    std::vector<Blob> blobs;
    for (const size_t size : bytes) blobs.push_back(blob_of(std::string(size, '0')));
    return layout.fits(bucket, blobs);
  };
  EXPECT_TRUE(fits(0, {4}));
  EXPECT_FALSE(fits(0, {0}));
  EXPECT_TRUE(fits(3, {0}) && fits(3, {8}) && fits(3, {16})) << "some of the rows";
  EXPECT_FALSE(fits(3, {20}) || fits(3, {6}) || fits(3, {4, 4}) || fits(3, {}));
}

// Tensors of two segments, of which the first has a tensor of each of two shards, and batch statistics of both.
TEST(GradientLayout, WithPipelineParallelismABucketIsOfOneSegment) {
  const TensorParts parts{.gradients = {{1, -1}, {0, -1}, {0, 1}, {0, 0}, {1, -1}}, .statistics = {1, 0, 1}};
  RankGradient gradient;
  for (int t = 0; t < 5; ++t) gradient.gradients.push_back(Tensor::zeros({1}));
  for (int t = 0; t < 3; ++t) gradient.batch_statistics.push_back(Tensor::zeros({1}));
  GradientLayout layout(/*bucket_elements=*/8, {}, parts);
  EXPECT_TRUE(layout.learn(gradient));
  EXPECT_EQ(tensors_in(*layout.buckets()), (std::vector<std::vector<int>>{{1}, {3}, {2}, {0, 4}, {6}, {5, 7}}));
  EXPECT_EQ(layout.part(2), (NetworkPart{0, 1}));
  EXPECT_EQ(layout.part(4), (NetworkPart{1, -1}));
  EXPECT_EQ(layout.part(5), (NetworkPart{1, -1}));
  EXPECT_EQ(layout.part(6), (NetworkPart{0, -1}));
  GradientLayout sharded(8, ShardOptions{.parameters = std::vector<Shape>(5, {1})}, parts);
  EXPECT_TRUE(sharded.learn(gradient));
  EXPECT_EQ(sharded.shards(), 5);
  EXPECT_EQ(tensors_in(*sharded.buckets()), (std::vector<std::vector<int>>{{1}, {3}, {2}, {0}, {4}, {6}, {5}, {7}}));
}

// Its other members' tensors are missing: the layout is learned from a whole one.
TEST(GradientLayout, IsNotLearnedFromAPartOfARankGradient) {
  GradientLayout layout(3, {}, parts_of_shards(kShardsOfGradients));
  RankGradient part = gradient_of_shards();
  part.gradients[0] = Tensor();
  EXPECT_FALSE(layout.learn(part));
  EXPECT_FALSE(layout.known());
}

}  // namespace
}  // namespace elinvar
