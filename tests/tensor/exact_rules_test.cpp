// The rules E2 to E6 of exact numerics (tensor/NUMERICS.md) where a random factor seldom reaches them: exponents far
// apart, balanced channels of weights, results out of range, values that are not finite, and empty or odd extents.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tests/support/bits.h"
#include "tests/tensor/exact_reference.h"

namespace elinvar::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

std::vector<int32_t> numbers(const Tensor& t) { return {t.data<int32_t>(), t.data<int32_t>() + t.numel()}; }

Tensor exponents(const std::vector<int32_t>& e) { return Tensor::from(e, {static_cast<int64_t>(e.size())}); }

// All numbers of a quantized tensor in memory, with those that fill odd extents.
std::vector<int64_t> integers(const Quantized& x) {
  const auto* q = static_cast<const int16_t*>(x.q.raw());
  return {q, q + 2 * x.q.numel()};
}

// --- E2.

TEST(ExactRules, ChannelsBelowTheOtherFactorsLargestByMoreThan2To100AreLeftOut) {
  // The third number would be the row's largest, and the last is too far below although it is large itself.
  const std::vector<float> values = {1.0f, -0x1.8p99f, 0x1p125f, 3.0f, 0x1p127f};
  const Tensor against = exponents({7, 7 - 100, 7 - 101, -2000, 7 - 130});
  with_every_kernel([&](const std::string& how) {
    SCOPED_TRACE(how);
    const Quantized rows = quantize_rows(Tensor::from(values, {1, 1, 5}), against);
    EXPECT_EQ(integers(rows), (std::vector<int64_t>{4096, -3072, 0, 0, 0, 0}));
    EXPECT_EQ(numbers(rows.rows), std::vector<int32_t>{1 + 7});
    EXPECT_EQ(numbers(rows.channels), (std::vector<int32_t>{-7, 93, 94, 2000, 123}));
    const Quantized channels = quantize_channels(Tensor::from(values, {5, 1, 1}), against);
    EXPECT_EQ(integers(channels), (std::vector<int64_t>{4096, -3072, 0, 0, 0, 0}));
    EXPECT_EQ(numbers(channels.channels), std::vector<int32_t>{1 + 7});
    EXPECT_EQ(numbers(channels.rows), (std::vector<int32_t>{-7, 93, 94, 2000, 123}));
  });
}

TEST(ExactRules, ExponentsEndAtMinus112AndZerosHaveIt) {
  // The last row is subnormal: it is 0, and so is every number of the third that is below 2^-126 when it is multiplied.
  const std::vector<float> values = {0.0f, -0.0f, 0x1p-113f, 0x1p-126f, 0x1p-40f, 0x1p-60f, 0x1.fp-127f, -0x1p-149f};
  with_every_kernel([&](const std::string& how) {
    SCOPED_TRACE(how);
    const Quantized x = quantize_rows(Tensor::from(values, {4, 1, 2}), exponents({0, -70}));
    EXPECT_EQ(numbers(x.rows), (std::vector<int32_t>{-112, -112, -39, -112}));
    EXPECT_EQ(integers(x), (std::vector<int64_t>{0, 0, 4096, 0, 4096, 0, 0, 0}));
  });
}

// --- E3.

struct Channel {
  float largest;     // of the channel's weights
  int32_t exponent;  // that it must have
};

// Makes weights of these channels and compares what they are rounded to.
void expect_balance(const std::vector<Channel>& all, int64_t groups) {
  constexpr int64_t kOutputs = 4, kTaps = 2;  // outputs of a group
  const auto count = static_cast<int64_t>(all.size());
  const int64_t channels = count / groups, outputs = kOutputs * groups;
  Tensor w = Tensor::empty({outputs, kTaps, channels});
  std::vector<int32_t> expected;
  for (int64_t o = 0; o < outputs; ++o)
    for (int64_t t = 0; t < kTaps; ++t)
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t channel = o / kOutputs * channels + c;
        const float largest = all[static_cast<size_t>(channel)].largest;
        const bool here = o % kOutputs == channel % 3 && t == channel % kTaps;  // the last output of a group is finite
        const float other = std::isfinite(largest) ? 0.375f * largest : 0.5f;
        w.data<float>()[(o * kTaps + t) * channels + c] = here ? largest : (o + c) % 2 == 0 ? other : -other;
      }
  for (const Channel& channel : all) expected.push_back(channel.exponent);
  with_every_kernel([&](const std::string& how) {
    SCOPED_TRACE(how);
    const Quantized y = quantize_weight(w, groups);
    ASSERT_EQ(numbers(y.channels), expected);
    for (int64_t o = 0; o < outputs; ++o) {
      const auto raised = [&](int64_t i) {
        return std::ldexp(static_cast<double>(w.data<float>()[o * kTaps * channels + i]),
                          -expected[static_cast<size_t>(o / kOutputs * channels + i % channels)]);
      };
      double largest = 0;
      for (int64_t i = 0; i < kTaps * channels; ++i)
        largest = std::isfinite(raised(i)) ? std::max(largest, std::abs(raised(i))) : kInf;
      const int32_t e = exponent_of(largest);
      ASSERT_EQ(y.rows.data<int32_t>()[o], e) << o;
      for (int64_t i = 0; e != kNotFinite && i < kTaps * channels; ++i)
        ASSERT_EQ(integer_at(y, o, i / channels, i % channels),
                  nearest_integer(std::ldexp(raised(i), kFractionBits - e)))
            << o << " " << i;
    }
  });
}

TEST(ExactRules, ChannelsOfSmallWeightsAreRaised) {
  const std::vector<Channel> all = {{1.5f, 0},      {0.25f, 0},      {0.2499f, -1}, {0.125f, -1},   {0.0625f, -2},
                                    {0x1p-8f, -6},  {0x1.fp-9f, -7}, {0x1p-9f, -7}, {0x1p-10f, -8}, {0x1p-11f, -8},
                                    {0x1p-20f, -8}, {0x1p-130f, -8}, {0.0f, 0},     {-1.0f, 0}};
  expect_balance(all, 1);
  expect_balance(all, 2);
  expect_balance(all, 7);
  expect_balance({{0.25f, 0}, {0.2499f, 0}, {0.0625f, 0}, {0x1p-5f, -1}}, 1);
}

TEST(ExactRules, ChannelsThatAreNotFiniteAreNeitherRaisedNorComparedWith) {
  const std::vector<Channel> all = {{kNaN, 0}, {0.5f, 0}, {0x1p-5f, -2}, {-kInf, 0}, {0x1p-30f, -8}, {kInf, 0}};
  expect_balance(all, 1);
  expect_balance(all, 2);
  expect_balance(all, 3);
  expect_balance({{kNaN, 0}, {kInf, 0}}, 1);
}

TEST(ExactRules, ASubnormalChannelHasTheExponentMinus126) {
  // The largest weight has the exponent -118. Were the others' exact, they would be -130 and -148.
  expect_balance({{0x1.8p-119f, 0}, {0x1p-121f, 0}, {0x1p-124f, -3}, {0x1p-126f, -5}, {0x1p-131f, -6}, {0x1p-149f, -6}},
                 1);
  expect_balance({{0x1p-130f, 0}, {0x1p-140f, 0}, {0.0f, 0}, {0x1p-149f, 0}}, 2);
}

TEST(ExactRules, RaisedChannelsKeepTheirPrecisionNextToAnOutlier) {
  // Channel 0 of x is 2^8 times as large as the others, and its weights are as much smaller.
  constexpr int64_t kRows = 6, kChannels = 8, kOutputs = 5;
  Tensor x = random_factor({kRows, 1, kChannels}, 1), w = random_factor({kOutputs, 1, kChannels}, 2);
  for (int64_t i = 0; i < x.numel(); i += kChannels) x.data<float>()[i] *= 256;
  for (int64_t i = 0; i < w.numel(); i += kChannels) w.data<float>()[i] /= 256;
  const Quantized weight = quantize_weight(w);
  EXPECT_LT(numbers(weight.channels)[0], -4);
  Tensor reference = Tensor::zeros({kRows, kOutputs}, DType::f64);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t o = 0; o < kOutputs; ++o)
      for (int64_t c = 0; c < kChannels; ++c)
        reference.data<double>()[r * kOutputs + o] +=
            double{x.data<float>()[r * kChannels + c]} * w.data<float>()[o * kChannels + c];
  // Without the rule the error is six times as large.
  EXPECT_TRUE(close_to(exact_matmul(quantize_rows(x, weight.channels), weight), reference, 2e-4));
}

// --- E4.

TEST(ExactRules, SumsAreRoundedAndThenScaled) {
  std::vector<double> sums = {0, 1, -1, 3, 0x1p24 - 1, 0x1p24 + 1, 0x1p24 + 3, -0x1p24 - 1, 0x1p25 + 2, 0x1p25 + 6};
  sums.insert(sums.end(), {0x1p53 - 1, -0x1p53 + 1, 0x1.fffffep52, 0x1.ffffffp52, 0x1.8p30, 12345678901.0, 7, -5});
  std::vector<int32_t> columns;  // a few numbers are subnormal or too large for each of the larger exponents
  for (const int32_t e : {0,    26,   127,  128,  129,  150,  230,  256,  300,  -50,  -75,       -100,
                          -101, -102, -113, -123, -124, -126, -149, -175, -224, -300, kNotFinite})
    for (size_t i = 0; i < sums.size(); ++i) columns.push_back(e);
  std::vector<double> all;
  while (all.size() < columns.size()) all.insert(all.end(), sums.begin(), sums.end());
  const std::vector<float> bias(all.size(), 0x1.8p-120f);
  const auto count = static_cast<int64_t>(all.size());
  for (const int32_t row : {-300, -112, -24, -1, 0, 3, 99, 128, 300, kNotFinite})
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(fmt::format("row exponent {}, {} bias", row, with_bias ? "with" : "without"));
      Tensor expected = Tensor::empty({count});
      for (int64_t i = 0; i < count; ++i) {
        const float y = finished_sum(static_cast<int64_t>(all[static_cast<size_t>(i)]),
                                     int64_t{row} + columns[static_cast<size_t>(i)]);
        expected.data<float>()[i] = with_bias ? y + bias[static_cast<size_t>(i)] : y;
      }
      with_every_kernel([&](const std::string& how) {
        SCOPED_TRACE(how);
        Tensor got = Tensor::zeros({count});
        // Parts of odd lengths, so that each version's vectors and remainders have every number.
        for (int64_t begin = 0, length = 1; begin < count; begin += length, length = length % 37 + 1)
          finish_sums(all.data() + begin, std::min(length, count - begin), row, columns.data() + begin,
                      with_bias ? bias.data() + begin : nullptr, got.data<float>() + begin);
        EXPECT_TRUE(same_bits(got, expected));
      });
    }
}

TEST(ExactRules, ProductsBecomeSubnormalOrInfinite) {
  // Rows of x and w with magnitudes whose products are around 2^-149, 2^-126 and 2^128.
  const std::vector<float> magnitudes = {0x1p-75f, 0x1.8p-70f, 0x1p-63f, 1.0f, 0x1.7p60f, 0x1p64f, 0x1.9p100f};
  const auto count = static_cast<int64_t>(magnitudes.size());
  constexpr int64_t kChannels = 5;
  Tensor x = random_factor({count, 1, kChannels}, 1), w = random_factor({count, 1, kChannels}, 2);
  for (int64_t i = 0; i < x.numel(); ++i)
    for (Tensor* t : {&x, &w}) t->data<float>()[i] *= magnitudes[static_cast<size_t>(i / kChannels)];
  const Quantized rows = quantize_rows(x, exponents(std::vector<int32_t>(kChannels, 0))),
                  columns = quantize_rows(w, exponents(std::vector<int32_t>(kChannels, 0)));
  Tensor expected = Tensor::empty({count, count});
  int subnormal = 0, infinite = 0;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < count; ++j) {
      int64_t sum = 0;
      for (int64_t c = 0; c < kChannels; ++c) sum += integer_at(rows, i, 0, c) * integer_at(columns, j, 0, c);
      const float y = finished_sum(
          sum, int64_t{numbers(rows.rows)[static_cast<size_t>(i)]} + numbers(columns.rows)[static_cast<size_t>(j)]);
      expected.data<float>()[i * count + j] = y;
      subnormal += std::fpclassify(y) == FP_SUBNORMAL;
      infinite += std::isinf(y);
    }
  EXPECT_GT(subnormal, 2);
  EXPECT_GT(infinite, 2);
  with_every_kernel([&](const std::string& how) {
    SCOPED_TRACE(how);
    EXPECT_TRUE(same_bits(exact_matmul(rows, columns), expected));
  });
}

// --- E6.

// Requires NaN where `depends` is true of an element's index, and elsewhere the bits of `finite`.
void expect_nan_where(const Tensor& got, const Tensor& finite, const std::function<bool(int64_t)>& depends) {
  Tensor expected = finite.clone();
  for (int64_t i = 0; i < expected.numel(); ++i)
    if (depends(i)) expected.data<float>()[i] = kNaN;
  EXPECT_TRUE(same_bits(got, expected));
}

// Values of one exponent, so that no channel of weights is raised and none is without the largest magnitude's exponent.
Tensor even_factor(const Shape& shape, uint64_t seed) {
  Tensor x = random_factor(shape, seed);
  for (float& v : x.span<float>()) v = std::copysign(0.5f + 0.25f * std::min(std::abs(v), 1.0f), v);
  return x;
}

Tensor with(const Tensor& x, int64_t i, float value) {
  Tensor y = x.clone();
  y.data<float>()[i] = value;
  return y;
}

struct Results {
  Tensor y, dx, dw;
};

// The products of x (images, pixels, channels), w (filters, taps, channels / groups) and dy.
using Products = std::function<Results(const Tensor& x, const Tensor& w, const Tensor& dy)>;

void expect_nan_of_what_depends(const Tensor& x, const Tensor& w, const Tensor& dy, const Products& products) {
  const Results finite = products(x, w, dy);
  const int64_t outputs = w.dim(0), x_row = x.dim(1) * x.dim(2), dy_row = dy.dim(1) * outputs,
                w_row = w.dim(1) * w.dim(2);
  const auto all = [](int64_t) { return true; };
  const auto none = [](int64_t) { return false; };
  for (const float bad : {kNaN, kInf, -kInf}) {
    for (int64_t i = 0; i < x.numel(); i += 7) {
      SCOPED_TRACE(fmt::format("{} in x, at {}", bad, i));
      const Results r = products(with(x, i, bad), w, dy);
      expect_nan_where(r.y, finite.y, [&](int64_t j) { return j / dy_row == i / x_row; });
      expect_nan_where(r.dx, finite.dx, none);
      expect_nan_where(r.dw, finite.dw, all);  // sums over all rows of x
    }
    for (int64_t i = 0; i < w.numel(); i += 5) {
      SCOPED_TRACE(fmt::format("{} in w, at {}", bad, i));
      const Results r = products(x, with(w, i, bad), dy);
      expect_nan_where(r.y, finite.y, [&](int64_t j) { return j % outputs == i / w_row; });
      expect_nan_where(r.dx, finite.dx, all);  // sums over all rows of w
      expect_nan_where(r.dw, finite.dw, none);
    }
    for (int64_t i = 0; i < dy.numel(); i += 5) {
      SCOPED_TRACE(fmt::format("{} in dy, at {}", bad, i));
      const Results r = products(x, w, with(dy, i, bad));
      expect_nan_where(r.y, finite.y, none);
      expect_nan_where(r.dx, finite.dx, [&](int64_t j) { return j / x_row == i / dy_row; });
      expect_nan_where(r.dw, finite.dw, [&](int64_t j) { return j / w_row == i % outputs; });
    }
  }
}

TEST(ExactRules, OneValueThatIsNotFiniteMakesAllDependentResultsNaN) {
  const Tensor x = even_factor({5, 1, 11}, 1), w = even_factor({6, 1, 11}, 2), dy = even_factor({5, 1, 6}, 3);
  const Products matrices = [](const Tensor& a, const Tensor& b, const Tensor& dc) {
    const Quantized weight = quantize_weight(b), rows = quantize_rows(a, weight.channels);
    return Results{exact_matmul(rows, weight), exact_matmul(quantize_rows(dc, weight.rows), pair_rows(weight)),
                   exact_matmul(quantize_channels(dc, rows.rows), pair_rows(rows))};
  };
  const Shape images{3, 4, 5, 4}, filters{4, 3, 3, 2};
  const ConvOptions options{.pad_h = 1, .pad_w = 1, .groups = 2};
  const Products convolutions = [&](const Tensor& a, const Tensor& b, const Tensor& dc) {
    const Quantized weight = quantize_weight(b, 2), rows = quantize_rows(a, weight.channels);
    return Results{
        exact_conv2d(rows, weight, {}, images, filters, options),
        exact_conv2d_grad_input(quantize_rows(dc, weight.rows), pair_rows(weight), images, filters, options),
        exact_conv2d_grad_filter(quantize_channels(dc, rows.rows), pair_rows(rows), images, filters, options)};
  };
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    set_isa(isa);
    expect_nan_of_what_depends(x, w, dy, matrices);
    expect_nan_of_what_depends(even_factor({3, 20, 4}, 1), even_factor({4, 9, 2}, 2), even_factor({3, 20, 4}, 3),
                               convolutions);
  }
}

// --- Odd and empty extents.

TEST(ExactRules, TheLastOfAnOddNumberIsPairedWithZero) {
  for (const auto& [rows, positions, channels] :
       {std::array<int64_t, 3>{1, 1, 1}, {2, 3, 5}, {3, 1, 4}, {5, 2, 7}, {8, 1, 33}, {9, 4, 16}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", rows, positions, channels));
    const Tensor x = random_factor({rows, positions, channels}, 1, Magnitudes::largest);
    with_every_kernel([&](const std::string& how) {
      SCOPED_TRACE(how);
      const Quantized of_channels = quantize_rows(x, Tensor::zeros({channels}, DType::i32)),
                      of_rows = pair_rows(of_channels),
                      rounded = quantize_channels(x, Tensor::zeros({rows}, DType::i32));
      EXPECT_EQ(of_channels.q.shape(), (Shape{rows, positions, (channels + 1) / 2}));
      for (const Quantized* y : {&of_rows, &rounded}) {
        EXPECT_EQ(y->pairs, Pairs::rows);
        EXPECT_EQ(y->q.shape(), (Shape{(rows + 1) / 2, positions, channels}));
        EXPECT_EQ(y->rows.numel(), rows);
        EXPECT_EQ(y->channels.numel(), channels);
      }
      for (int64_t p = 0; p < positions; ++p) {
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < channels; ++c) {
            ASSERT_EQ(std::abs(integer_at(of_channels, r, p, c)), kMostQuantized);
            ASSERT_EQ(integer_at(of_rows, r, p, c), integer_at(of_channels, r, p, c));
            ASSERT_EQ(integer_at(rounded, r, p, c), integer_at(of_channels, r, p, c));
          }
          if (channels % 2 != 0) {
            ASSERT_EQ(integer_at(of_channels, r, p, channels), 0);
          }
        }
        for (int64_t c = 0; rows % 2 != 0 && c < channels; ++c) {
          ASSERT_EQ(integer_at(of_rows, rows, p, c), 0);
          ASSERT_EQ(integer_at(rounded, rows, p, c), 0);
        }
      }
    });
  }
}

TEST(ExactRules, ExtentsMayBeZero) {
  const auto zeros = [](int64_t count) { return Tensor::zeros({count}, DType::i32); };
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{0, 4, 3}, {3, 0, 5}, {3, 4, 0}, {0, 0, 2}, {0, 3, 0}, {0, 0, 0}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", m, n, k));
    const Tensor x = random_factor({m, 1, k}, 1), w = random_factor({n, 1, k}, 2), bias = random_factor({n}, 3);
    with_every_kernel([&](const std::string& how) {
      SCOPED_TRACE(how);
      const Quantized weight = quantize_weight(w), rows = quantize_rows(x, weight.channels),
                      columns = quantize_channels(x, zeros(m));
      EXPECT_EQ(weight.channels.numel(), k);
      EXPECT_EQ(columns.channels.numel(), k);
      for (const int32_t e : numbers(rows.rows)) EXPECT_TRUE(k > 0 || e == kLeastExponent);
      const Tensor y = exact_matmul(rows, weight, bias);
      ASSERT_EQ(y.shape(), (Shape{m, n}));
      for (int64_t i = 0; i < y.numel(); ++i) EXPECT_EQ(y.data<float>()[i], bias.data<float>()[i % n]);
      const Tensor sums = exact_matmul(columns, pair_rows(rows));
      ASSERT_EQ(sums.shape(), (Shape{k, k}));
      if (m == 0) {
        EXPECT_TRUE(same_bits(sums, Tensor::zeros({k, k})));
      }
    });
  }
  const Shape images{0, 5, 4, 6}, filters{3, 3, 3, 6};
  const Quantized weight = quantize_weight(random_factor({3, 9, 6}, 1)),
                  none = quantize_rows(Tensor::zeros({0, 20, 6}), weight.channels);
  EXPECT_EQ(exact_conv2d(none, weight, {}, images, filters, {}).shape(), (Shape{0, 3, 2, 3}));
  const Tensor dy = Tensor::zeros({0, 6, 3});
  EXPECT_EQ(exact_conv2d_grad_input(quantize_rows(dy, weight.rows), pair_rows(weight), images, filters, {}).shape(),
            images);
  EXPECT_TRUE(
      same_bits(exact_conv2d_grad_filter(quantize_channels(dy, none.rows), pair_rows(none), images, filters, {}),
                Tensor::zeros(filters)));
}

}  // namespace
}  // namespace elinvar::test
