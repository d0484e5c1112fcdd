// Datasets of tensors in memory.
#include "data/tensor_dataset.h"

#include <gtest/gtest.h>

#include "data/loader.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

TensorSamples points() {
  return {.inputs = Tensor::from(std::vector<float>{0, 1, 2, 3, 4, 5}, {3, 2}),
          .targets = Tensor::from(std::vector<int64_t>{1, 0, 1}, {3}),
          .classes = 2};
}

TEST(TensorDataset, HasTheSamplesOfItsTensors) {
  const std::unique_ptr<Dataset> data = tensor_dataset(points());
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->input_shape(), (Shape{2}));
  EXPECT_EQ(data->input_dtype(), DType::f32);
  EXPECT_EQ(data->target_shape(), Shape{});
  EXPECT_EQ(data->classes(), 2);
  float input[2];
  int64_t target = 0;
  data->read(2, {.seed = 7, .epoch = 3, .augment = true}, {input, &target});
  EXPECT_EQ(input[0], 4);
  EXPECT_EQ(input[1], 5);
  EXPECT_EQ(target, 1);
}

TEST(TensorDataset, ReadsViewsAndSequences) {
  const Tensor whole = Tensor::from(std::vector<int32_t>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor next = Tensor::from(std::vector<int64_t>{2, 3, 5, 6}, {2, 2});
  const std::shared_ptr<const Dataset> data =
      tensor_dataset({.inputs = whole.slice(1, 0, 2), .targets = next, .classes = 7});
  EXPECT_EQ(data->target_shape(), (Shape{2}));
  Loader loader(data, {.global_batch = 2, .shuffle = false});
  const Batch batch = loader.batch(0, 0);
  EXPECT_EQ(std::vector<int32_t>(batch.input.data<int32_t>(), batch.input.data<int32_t>() + 4),
            (std::vector<int32_t>{1, 2, 4, 5}));
  EXPECT_EQ(std::vector<int64_t>(batch.target.data<int64_t>(), batch.target.data<int64_t>() + 4),
            (std::vector<int64_t>{2, 3, 5, 6}));
}

TEST(TensorDataset, IsIdentifiedByItsContents) {
  const Digest of_points = digest(*tensor_dataset(points()));
  EXPECT_EQ(digest(*tensor_dataset(points())), of_points);
  TensorSamples value = points(), label = points(), shape = points(), classes = points();
  value.inputs.data<float>()[5] = 6;
  label.targets.data<int64_t>()[0] = 0;
  shape.inputs = shape.inputs.reshape({3, 2, 1, 1});
  classes.classes = 3;
  for (const TensorSamples& other : {value, label, shape, classes})
    EXPECT_NE(digest(*tensor_dataset(other)), of_points);
}

TEST(TensorDataset, RefusesTensorsThatAreNoSamples) {
  const auto error = [](auto change) {
    TensorSamples samples = points();
    change(samples);
    return test::message_of<UsageError>([&] { tensor_dataset(samples); });
  };
  EXPECT_EQ(error([](TensorSamples& s) { s.inputs = s.inputs.to(DType::f64); }),
            "[tensor_dataset] inputs must be (samples, ..) of float32 or int32, got float64 (3, 2)");
  EXPECT_EQ(
      error([](TensorSamples& s) { s.targets = s.targets.to(DType::i32); }),
      "[tensor_dataset] targets must be (samples) or (samples, T) of int64, or numbers of float32, got int32 (3,)");
  EXPECT_EQ(error([](TensorSamples& s) { s.targets = {}; }),
            "[tensor_dataset] targets must be (samples) or (samples, T) of int64, or numbers of float32, got nothing");
  EXPECT_EQ(error([](TensorSamples& s) { s.inputs = s.inputs.slice(0, 0, 2); }),
            "[tensor_dataset] expected as many targets as inputs, and at least one, got 2 and 3");
  EXPECT_EQ(error([](TensorSamples& s) { s.classes = 0; }), "[tensor_dataset] classes must be at least 1, got 0");
}

}  // namespace
}  // namespace elinvar
