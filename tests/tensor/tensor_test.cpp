#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tensor/base/check.h"
#include "tensor/ops/copy.h"
#include "tests/support/bits.h"

namespace elinvar::test {
namespace {

Tensor count_up(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(values, shape);
}

std::vector<float> values_of(const Tensor& t) {
  const Tensor c = t.to_contiguous();
  return {c.span<float>().begin(), c.span<float>().end()};
}

void expect_usage_error(const std::function<void()>& call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << text;
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST(Shape, BroadcastsFromTheLastDimension) {
  EXPECT_EQ(broadcast({2, 1, 4}, {3, 1}, "op"), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast({}, {5}, "op"), Shape{5});
  EXPECT_EQ(broadcast({0}, {1}, "op"), Shape{0});
  expect_usage_error(
      [] {
        broadcast({2, 3}, {2, 4}, "mul");
      },
      "[mul] shapes (2, 3) and (2, 4) do not broadcast: dimension -1");
}

TEST(Shape, PrintsAndCompares) {
  EXPECT_EQ(to_string(Shape{}), "()");
  EXPECT_EQ(to_string(Shape{3}), "(3,)");
  EXPECT_EQ(to_string(Shape{2, 0}), "(2, 0)");
  EXPECT_FALSE(Shape{2} == (Shape{2, 1}));
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  expect_usage_error([] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }, "at most 8 dimensions");
  expect_usage_error([] { normalize_dim(2, 2, "sum"); }, "[sum] dimension 2 is out of range");
  EXPECT_EQ(normalize_dim(-2, 2, "sum"), 0);
}

TEST(Tensor, HandlesShareAndClonesDoNot) {
  Tensor a = Tensor::zeros({2, 2});
  EXPECT_TRUE(a.unique());
  Tensor b = a, c = a.clone();
  EXPECT_FALSE(a.unique());
  b.data<float>()[3] = 5.0f;
  EXPECT_EQ(a.data<float>()[3], 5.0f);
  EXPECT_EQ(c.data<float>()[3], 0.0f);
  EXPECT_TRUE(a.shares_storage(b));
  EXPECT_FALSE(a.shares_storage(c));
}

TEST(Tensor, TransposeSliceAndSelectAreViews) {
  const Tensor x = count_up({2, 3, 4});
  const Tensor t = x.transpose(0, 2);
  EXPECT_EQ(t.shape(), (Shape{4, 3, 2}));
  EXPECT_FALSE(t.contiguous());
  EXPECT_TRUE(t.shares_storage(x));
  EXPECT_EQ(values_of(t.select(0, 1)), (std::vector<float>{1, 13, 5, 17, 9, 21}));
  EXPECT_EQ(values_of(x.slice(2, 1, 4, 2).select(1, -3 + 3)), (std::vector<float>{1, 3, 13, 15}));
  EXPECT_EQ(values_of(x.permute({1, 0, 2}).slice(0, 2, 3)), (std::vector<float>{8, 9, 10, 11, 20, 21, 22, 23}));
  EXPECT_TRUE(x.slice(0, 1, 2).contiguous());
  EXPECT_EQ(x.slice(1, 2, 2).numel(), 0);
  expect_usage_error([&] { x.slice(1, 2, 4); }, "[slice] [2, 4) is not inside dimension 1 of shape (2, 3, 4)");
  expect_usage_error([&] { x.permute({0, 0, 1}); }, "[permute] dimension 0 is named twice");
  expect_usage_error([&] { x.transpose(0, 3); }, "out of range");
}

TEST(Tensor, ExpandRepeatsWithoutACopy) {
  const Tensor x = count_up({3, 1});
  const Tensor y = x.expand({2, 3, 2});
  EXPECT_TRUE(y.shares_storage(x));
  EXPECT_EQ(values_of(y), (std::vector<float>{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  expect_usage_error([&] { x.expand({2, 2}); }, "[expand] ");
  expect_usage_error([&] { count_up({2}).expand({1}); }, "[expand] shape (2,) does not expand to (1,)");
}

TEST(Tensor, ReshapeInfersOneExtent) {
  const Tensor x = count_up({2, 6});
  EXPECT_EQ(x.reshape({3, -1}).shape(), (Shape{3, 4}));
  EXPECT_TRUE(x.reshape({12}).shares_storage(x));
  EXPECT_EQ(values_of(x.transpose(0, 1).reshape({4, 3})), (std::vector<float>{0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11}));
  EXPECT_EQ(Tensor::zeros({0, 3}).reshape({3, 0}).shape(), (Shape{3, 0}));
  expect_usage_error([&] { x.reshape({5, -1}); }, "[reshape] 12 elements of shape (2, 6) do not fit");
  expect_usage_error([&] { x.reshape({-1, -1}); }, "only one extent can be -1");
  expect_usage_error([&] { x.reshape({-3, -4}); }, "[reshape]");
  expect_usage_error([&] { Tensor::zeros({0}).reshape({0, -1}); }, "[reshape]");
}

TEST(Tensor, SqueezeAndUnsqueeze) {
  const Tensor x = count_up({2, 3});
  EXPECT_EQ(x.unsqueeze(0).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(x.unsqueeze(-1).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(x.unsqueeze(1).squeeze(1).shape(), x.shape());
  expect_usage_error([&] { x.squeeze(1); }, "[squeeze] dimension 1 of shape (2, 3) is not 1");
}

TEST(Tensor, ChecksTypesShapesAndSizes) {
  Tensor x = Tensor::zeros({2});
  expect_usage_error([&] { x.data<double>(); }, "elements are float32, asked for as float64");
  expect_usage_error([] { Tensor::from(std::vector<float>{1, 2, 3}, {2, 2}); }, "3 values do not fill shape (2, 2)");
  expect_usage_error([] { Tensor::zeros({2, -1}); }, "negative extent");
  expect_usage_error([] { Tensor::empty({int64_t{1} << 40, int64_t{1} << 40}); }, "too large");
  expect_usage_error([&] { x.item(); }, "[item] one element expected, shape is (2,)");
  expect_usage_error([] { Tensor().raw(); }, "undefined");
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor::scalar(2.5).item(), 2.5);
  EXPECT_EQ(Tensor::scalar(3, DType::u8).item(), 3.0);
}

TEST(Tensor, EmptyTensors) {
  Tensor x = Tensor::zeros({3, 0, 2});
  EXPECT_EQ(x.numel(), 0);
  EXPECT_TRUE(x.contiguous());
  EXPECT_EQ(x.clone().shape(), x.shape());
  EXPECT_EQ(x.transpose(0, 2).to_contiguous().shape(), (Shape{2, 0, 3}));
  fill(x, 1.0);
}

TEST(Copy, AnyStridesOnBothSides) {
  const Tensor x = count_up({3, 4, 5});
  Tensor y = Tensor::zeros({5, 4, 3});
  Tensor view = y.transpose(0, 2);
  copy(x, view);
  EXPECT_TRUE(same_bits(y.transpose(0, 2), x));
  Tensor row = y.select(1, 2);
  copy(Tensor::scalar(7), row);  // broadcasts
  EXPECT_EQ(values_of(y.select(1, 2)), std::vector<float>(15, 7.0f));
  EXPECT_TRUE(same_bits(y.select(1, 1), x.transpose(0, 2).select(1, 1)));
}

TEST(Copy, LargeCopiesAreWhole) {
  const Tensor x = count_up({257, 513});
  for (int threads : {1, 3}) {
    CpuStream stream(threads);
    const StreamScope scope(stream);
    EXPECT_TRUE(same_bits(x.transpose(0, 1).clone().transpose(0, 1), x));
    Tensor y = Tensor::full({513, 257}, -3.0);
    Tensor part = y.slice(0, 1, 513, 2).slice(1, 100, 200);
    fill(part, 4.0);
    double sum = 0.0;
    for (float v : y.span<float>()) sum += v;
    EXPECT_EQ(sum, -3.0 * 513 * 257 + 7.0 * 256 * 100);
  }
}

TEST(Copy, Bf16RoundsToNearestEven) {
  const auto rounded = [](float x) { return static_cast<float>(bf16(x)); };
  EXPECT_EQ(rounded(1.0f), 1.0f);
  EXPECT_EQ(rounded(1.0f + 0x1p-8f), 1.0f);                       // a tie, to even
  EXPECT_EQ(rounded(1.0f + 0x1p-7f + 0x1p-8f), 1.0f + 0x1p-6f);   // a tie, to even
  EXPECT_EQ(rounded(1.0f + 0x1p-8f + 0x1p-20f), 1.0f + 0x1p-7f);  // above a tie
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(rounded(0x1p-140f), 0.0f);
  EXPECT_EQ(rounded(0x1p-133f), 0x1p-133f);  // the smallest subnormal
  EXPECT_TRUE(std::signbit(rounded(-0.0f)));
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7f800001u))));
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0xffffffffu))));
  const Tensor x = Tensor::from(std::vector<float>{1.0f, 3.14159265f, -2.71828f}, {3});
  EXPECT_EQ(values_of(x.to(DType::bf16).to(DType::f32)), (std::vector<float>{1.0f, 3.140625f, -2.71875f}));
}

TEST(Copy, FloatToIntegerTruncatesAndOutOfRangeIsZero) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x =
      Tensor::from(std::vector<float>{1.9f, -1.9f, 255.5f, 256.0f, -0.5f, inf, -inf, NAN, -0x1p31f, 0x1p31f}, {10});
  const Tensor i = x.to(DType::i32), u = x.to(DType::u8);
  EXPECT_EQ(std::vector<int32_t>(i.span<int32_t>().begin(), i.span<int32_t>().end()),
            (std::vector<int32_t>{1, -1, 255, 256, 0, 0, 0, 0, std::numeric_limits<int32_t>::min(), 0}));
  EXPECT_EQ(std::vector<uint8_t>(u.span<uint8_t>().begin(), u.span<uint8_t>().end()),
            (std::vector<uint8_t>{1, 0, 255, 0, 0, 0, 0, 0, 0, 0}));
  const Tensor d = Tensor::from(std::vector<double>{-2147483648.75, -2147483649.0, -0x1p63, 0x1p63}, {4});
  const Tensor narrow = d.to(DType::i32), wide = d.to(DType::i64);
  EXPECT_EQ(narrow.data<int32_t>()[0], std::numeric_limits<int32_t>::min());
  EXPECT_EQ(narrow.data<int32_t>()[1], 0);
  EXPECT_EQ(wide.data<int64_t>()[2], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(wide.data<int64_t>()[3], 0);
}

TEST(Copy, EveryPairOfTypes) {
  const Tensor x = Tensor::from(std::vector<float>{0, 1, 2, 100}, {2, 2});
  const DType all[] = {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8};
  for (DType a : all)
    for (DType b : all) EXPECT_TRUE(same_bits(x.to(a).to(b).to(DType::f32), x)) << name_of(a) << " to " << name_of(b);
}

}  // namespace
}  // namespace elinvar::test
