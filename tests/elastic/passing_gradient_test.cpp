#include "elastic/protocol/passing_gradient.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace elinvar {
namespace {

TEST(PassingGradient, ABucketPassesOnceAllItsTensorsHaveComeAndNothingIsKept) {
  const Buckets buckets({{3}, {2}, {1}}, 2, BucketCuts{});
  PassingGradient gradient(/*vrank=*/3, /*count=*/7, buckets);
  EXPECT_EQ(gradient.vrank(), 3);
  EXPECT_EQ(gradient.count(), 7);
  std::vector<Tensor> tensors;
  for (const int64_t n : {3, 2, 1}) tensors.push_back(Tensor::full({n}, static_cast<double>(n)));
  std::vector<int> passed;
  const auto put = [&](int t) {
    for (const auto& [bucket, slices] : gradient.put(t, tensors[static_cast<size_t>(t)])) {
      passed.push_back(bucket);
      ASSERT_EQ(slices.size(), buckets.slices(bucket).size());
      for (size_t i = 0; i < slices.size(); ++i) {
        const Slice& at = buckets.slices(bucket)[i];
        EXPECT_EQ(slices[i].numel(), at.end - at.begin);
        EXPECT_TRUE(slices[i].shares_storage(tensors[static_cast<size_t>(at.tensor)]));
      }
    }
  };
  for (const int t : {2, 0, 1}) {
    EXPECT_FALSE(gradient.complete());
    put(t);
  }
  EXPECT_TRUE(gradient.complete());
  std::sort(passed.begin(), passed.end());
  for (int b = 0; b < buckets.count(); ++b) EXPECT_EQ(passed.at(static_cast<size_t>(b)), b);
  for (const Tensor& tensor : tensors) EXPECT_TRUE(tensor.unique()) << "nothing holds it any more";
}

}  // namespace
}  // namespace elinvar
