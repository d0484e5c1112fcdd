// Exact products: against the rule of tensor/quantized.h in int64, on each device, and on CPUs with every set of
// instructions and number of threads.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/cuda/product_plan.h"
#include "tensor/ops/batch_norm.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/pointwise.h"
#include "tests/support/bits.h"
#include "tests/tensor/exact_reference.h"

namespace elinvar::test {
namespace {

constexpr Magnitudes kAllMagnitudes[] = {Magnitudes::normal, Magnitudes::largest, Magnitudes::mixed,
                                         Magnitudes::endless};

class ExactProducts : public ExactTest {};
INSTANTIATE_TEST_SUITE_P(, ExactProducts, ::testing::ValuesIn(all_devices()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });

Quantized on_host(const Quantized& x) {
  return {.q = x.q.to(Device{}), .rows = x.rows.to(Device{}), .channels = x.channels.to(Device{}), .pairs = x.pairs};
}

TEST_P(ExactProducts, RoundRowsByTheRule) {
  for (const Magnitudes values : {Magnitudes::normal, Magnitudes::largest, Magnitudes::mixed})
    for (const auto& [r, p, c] : {std::array<int64_t, 3>{5, 1, 7}, {3, 6, 4}, {40, 1, 130}, {1, 3000, 33}}) {
      const Tensor x = random_factor({r, p, c}, 1, values);
      Tensor against = Tensor::zeros({c}, DType::i32);
      for (int64_t i = 0; i < c; ++i)
        against.data<int32_t>()[i] = static_cast<int32_t>(i % 5 - (i % 3 == 0 ? 120 * (i % 2) : 0));
      const int32_t most = 4;
      everywhere([&] {
        const Quantized y = on_host(quantize_rows(sent(x), sent(c > 4 ? against : Tensor::zeros({c}, DType::i32))));
        for (int64_t i = 0; i < c; ++i)
          ASSERT_EQ(y.channels.data<int32_t>()[i], c > 4 ? -against.data<int32_t>()[i] : 0);
        for (int64_t i = 0; i < r; ++i) {
          double largest = 0.0;
          const auto scaled = [&](int64_t j) {
            const int32_t e = c > 4 ? against.data<int32_t>()[j % c] - most : 0;
            return e < kLeastRelative ? 0.0 : std::ldexp(x.data<float>()[i * p * c + j], e);
          };
          for (int64_t j = 0; j < p * c; ++j) largest = std::max(largest, std::abs(scaled(j)));
          const int32_t e = exponent_of(largest);
          ASSERT_EQ(y.rows.data<int32_t>()[i], e + (c > 4 ? most : 0));
          for (int64_t j = 0; j < p * c; ++j)
            ASSERT_EQ(integer_at(y, i, j / c, j % c), nearest_integer(std::ldexp(scaled(j), kFractionBits - e)))
                << i << " " << j;
        }
      });
    }
}

// Every device rounds as CPUs do; the large channel is far from those that its warp sees first.
TEST_P(ExactProducts, RoundEachFactorAsCpus) {
  const auto expect_same = [&](const char* what, const Quantized& here, const Quantized& expected) {
    EXPECT_TRUE(same_bits(here.q.to(Device{}), expected.q)) << what;
    EXPECT_TRUE(same_bits(here.rows.to(Device{}), expected.rows)) << what;
    EXPECT_TRUE(same_bits(here.channels.to(Device{}), expected.channels)) << what;
  };
  for (const Magnitudes values : kAllMagnitudes)
    for (const auto& [r, p, c, groups] : {std::array<int64_t, 4>{6, 9, 5, 3},
                                          {6, 9, 4, 3},
                                          {3, 1, 1100, 1},
                                          {1030, 1, 3, 1},
                                          {2, 300, 66, 2},
                                          {4, 9, 8, 2},
                                          {4, 1, 4, 2},
                                          {140, 3, 44, 1},
                                          {2, 2, 8000, 1},
                                          {2, 3, 5001, 1},
                                          {2, 5, 3300, 1},
                                          {2, 5, 3299, 1},
                                          {5, 5000, 1, 1}}) {
      if (c > 3000 && values != Magnitudes::mixed) continue;
      SCOPED_TRACE(fmt::format("{} x {} x {}", r, p, c));
      Tensor x = random_factor({r, p, c}, 1, values);
      x.data<float>()[x.numel() - 2] *= 1000.0f;
      Tensor against = Tensor::empty({r}, DType::i32);
      for (int64_t i = 0; i < r; ++i) against.data<int32_t>()[i] = static_cast<int32_t>(i * 11 % 13 - i / 1000 * 50);
      const Quantized w = quantize_weight(x, groups), by_channels = quantize_channels(x, against);
      everywhere([&] {
        const Quantized here = quantize_weight(sent(x), groups);
        expect_same("weight", here, w);
        expect_same("pairs of rows", pair_rows(here), pair_rows(w));
        if (groups == 1 || (r / groups % 2 == 0 && c % 2 == 0))
          expect_same("pairs of rows at once", pair_weight_rows(sent(x), groups, here.rows, here.channels),
                      pair_rows(w));
        expect_same("channels", quantize_channels(sent(x), sent(against)), by_channels);
      });
    }
}

// What is read on the way, or together, is rounded as if it were in memory.
TEST_P(ExactProducts, RoundFunctionsOfAFactorAndBothWaysAlike) {
  const auto expect_same = [&](const char* what, const Quantized& here, const Quantized& expected) {
    EXPECT_TRUE(same_bits(here.q.to(Device{}), expected.q)) << what;
    EXPECT_TRUE(same_bits(here.rows.to(Device{}), expected.rows)) << what;
    EXPECT_TRUE(same_bits(here.channels.to(Device{}), expected.channels)) << what;
    EXPECT_EQ(here.pairs, expected.pairs) << what;
  };
  for (const Magnitudes values : kAllMagnitudes)
    for (const auto& [r, p, c] : {std::array<int64_t, 3>{5, 9, 5},
                                  {2, 1, 1100},
                                  {1030, 1, 4},
                                  {3, 400, 66},
                                  {1, 0, 3},
                                  {0, 3, 4},
                                  {3, 130, 132},
                                  {130, 1, 132},
                                  {130, 1, 133},
                                  {1, 1, 9001},
                                  {34, 1, 16388},
                                  {33, 1, 16387}})
      for (const bool relu : {false, true}) {
        if (c > 9000 && (!relu || (values != Magnitudes::mixed && values != Magnitudes::normal))) continue;
        SCOPED_TRACE(fmt::format("{} x {} x {}, relu {}", r, p, c, relu));
        Tensor x = random_factor({r, p, c}, 1, values), a = random_factor({c}, 2), b = random_factor({c}, 3);
        if (c > 9000 &&
            values == Magnitudes::normal)  // one of the first or last four columns has a row's largest number
          for (const int64_t first : {int64_t{0}, c - 4})
            for (int64_t j = first; j < first + 4; ++j) {
              a.data<float>()[j] = 1.0f;
              b.data<float>()[j] = 512.0f;
              for (int64_t row = 0; row < r * p; ++row)
                x.data<float>()[row * c + j] = (row + j - first) % 4 == 0 ? 0.0f : -1e6f;
            }
        Tensor y = x, against = Tensor::empty({c}, DType::i32), of_rows = Tensor::empty({r}, DType::i32);
        if (x.numel() > 0) y = batch_norm_apply(x, {.mean = a, .inv = a, .a = a, .b = b}, {}, relu);
        for (int64_t i = 0; i < c; ++i) against.data<int32_t>()[i] = static_cast<int32_t>(i * 7 % 5 - i / 60 * 101);
        for (int64_t i = 0; i < r; ++i) of_rows.data<int32_t>()[i] = static_cast<int32_t>(i * 11 % 13 - i / 1000 * 50);
        const Quantized rows = quantize_rows(y, against), pairs = pair_rows(rows), as_is = quantize_rows(x, against),
                        channels = quantize_channels(x, of_rows);
        everywhere([&] {
          const Tensor here = sent(x), factors = sent(a), terms = sent(b);
          expect_same("rows", quantize_affine_rows(here, factors, terms, relu, sent(against)), rows);
          expect_same("pairs", pair_affine_rows(here, factors, terms, relu, sent(rows.rows), sent(rows.channels)),
                      pairs);
          expect_same("pairs of x itself",
                      pair_affine_rows(here, {}, {}, false, sent(as_is.rows), sent(as_is.channels)), pair_rows(as_is));
          const QuantizedBoth both = quantize_both(here, sent(against), sent(of_rows));
          expect_same("both, rows", both.rows, as_is);
          expect_same("both, channels", both.channels, channels);
        });
      }
}

// The bits of a mask are those of the result, and gradients that read them those of gradients that read it.
TEST_P(ExactProducts, MasksOfBatchNormsAreBits) {
  for (const auto& [rows, c] : {std::array<int64_t, 2>{70, 16}, {1, 1}, {129, 7}, {40, 133}, {3, 300}, {600, 12}}) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, c));
    const Tensor x = random_factor({rows, c}, 1, Magnitudes::mixed), residual = random_factor({rows, c}, 2),
                 dy = random_factor({rows, c}, 3);
    Tensor with_nan = residual.clone();
    with_nan.data<float>()[rows * c / 2] = std::nanf("");
    const Tensor factor = random_factor({c}, 4);
    everywhere([&] {
      const Tensor f = sent(factor), at = sent(x);
      const BatchNormFactors factors{f, f, f, f};
      EXPECT_THROW(batch_norm_apply_masked(at, factors, Tensor()), UsageError);
      const BatchNormMasked y = batch_norm_apply_masked(at, factors, sent(with_nan));
      EXPECT_TRUE(same_bits(y.y.to(Device{}), batch_norm_apply(at, factors, sent(with_nan), true).to(Device{})));
      const Tensor bits = y.mask.to(Device{}), value = y.y.to(Device{});
      ASSERT_EQ(bits.shape(), Shape{mask_bytes(rows * c)});
      for (int64_t i = 0; i < 8 * bits.numel(); ++i)
        ASSERT_EQ(bits.data<uint8_t>()[i / 8] >> (i % 8) & 1, i < rows * c && !(value.data<float>()[i] <= 0.0f)) << i;
      for (const bool want_g : {false, true}) {
        const BatchNormSums of_y = batch_norm_sums(sent(dy), at, y.y, factors, ReluMask::from_y, want_g),
                            of_bits = batch_norm_sums(sent(dy), at, y.mask, factors, ReluMask::from_bits, want_g);
        EXPECT_TRUE(same_bits(of_bits.sum_g.to(Device{}), of_y.sum_g.to(Device{})));
        EXPECT_TRUE(same_bits(of_bits.sum_gx.to(Device{}), of_y.sum_gx.to(Device{})));
        if (want_g) {
          EXPECT_TRUE(same_bits(of_bits.g.to(Device{}), of_y.g.to(Device{})));
        }
        for (const BatchNormSums* sums : {&of_y, static_cast<const BatchNormSums*>(nullptr)})
          EXPECT_TRUE(
              same_bits(batch_norm_gradient(sent(dy), at, y.mask, factors, sums, ReluMask::from_bits).to(Device{}),
                        batch_norm_gradient(sent(dy), at, y.y, factors, sums, ReluMask::from_y).to(Device{})));
      }
    });
  }
}

// y = a b^T by int64 sums of what was rounded.
Tensor product(const Quantized& a, const Quantized& b, int64_t m, int64_t n, int64_t k, const Tensor& bias) {
  Tensor c = Tensor::empty({m, n}, DType::f32);
  const auto element = [&](const Quantized& x, int64_t outer, int64_t inner) {
    return x.pairs == Pairs::channels ? integer_at(x, outer, 0, inner) : integer_at(x, inner, 0, outer);
  };
  const auto exponent = [](const Quantized& x, int64_t outer) {
    return (x.pairs == Pairs::channels ? x.rows : x.channels).data<int32_t>()[outer];
  };
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t q = 0; q < k; ++q) sum += element(a, i, q) * element(b, j, q);
      const float y = finished_sum(sum, int64_t{exponent(a, i)} + exponent(b, j));
      c.data<float>()[i * n + j] = bias.defined() ? y + bias.data<float>()[j] : y;
    }
  return c;
}

TEST_P(ExactProducts, OfMatricesAreExactSums) {
  for (const Magnitudes values : kAllMagnitudes)
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                  {5, 7, 3},
                                  {17, 65, 64},
                                  {17, 50, 2100},
                                  {2, 40, 1500},
                                  {70, 3, 1025},
                                  {9, 48, 31},
                                  {8, 72, 136},
                                  {60, 62, 1100},
                                  {70, 50, 2100},  // two chunks with plans
                                  {50, 40, 4100},  // three chunks
                                  {300, 300, 0},   // an empty sum
                                  {300, 64, 0},
                                  {60, 1100, 62},
                                  {1100, 60, 62},
                                  {130, 136, 40},
                                  {137, 146, 150},  // chunks with zeros at the end
                                  {144, 136, 176},
                                  {128, 112, 528}}) {
      if (values != Magnitudes::normal && m * n * k > 100000) continue;
      SCOPED_TRACE(fmt::format("{} x {} x {}", m, n, k));
      const Tensor x = random_factor({m, 1, k}, 1, values), w = random_factor({n, 1, k}, 2, values),
                   dy = random_factor({m, 1, n}, 3, values), bias = n % 2 == 0 ? random_factor({n}, 4) : Tensor{};
      const Quantized weight = quantize_weight(w), rows = quantize_rows(x, weight.channels),
                      gradient = quantize_rows(dy, weight.rows), columns = quantize_channels(dy, rows.rows);
      const Tensor y = product(rows, weight, m, n, k, bias), dx = product(gradient, pair_rows(weight), m, k, n, {}),
                   dw = product(columns, pair_rows(rows), n, k, m, {});
      everywhere([&] {
        const Quantized w_again = quantize_weight(sent(w)), x_again = quantize_rows(sent(x), w_again.channels),
                        dy_again = quantize_channels(sent(dy), x_again.rows);
        EXPECT_TRUE(same_bits(exact_matmul(x_again, w_again, bias.defined() ? sent(bias) : bias).to(Device{}), y));
        EXPECT_TRUE(
            same_bits(exact_matmul(quantize_rows(sent(dy), w_again.rows), pair_rows(w_again)).to(Device{}), dx));
        EXPECT_TRUE(same_bits(exact_matmul(dy_again, pair_rows(x_again)).to(Device{}), dw));
      });
    }
}

TEST_P(ExactProducts, OfPairsOfRowsByPairsOfChannelsAreRefused) {
  const Tensor no_exponents = Tensor::zeros({4}, DType::i32);
  const Quantized columns = quantize_channels(sent(random_factor({4, 1, 3}, 1)), sent(no_exponents)),
                  lines = quantize_rows(sent(random_factor({5, 1, 4}, 2)), sent(no_exponents));
  EXPECT_THROW(exact_matmul(columns, lines), UsageError);
}

// All factors are 8191, whose lower byte, 255, has the largest products on tensor cores: sums in int32 end before they
// overflow.
TEST_P(ExactProducts, OfManyTermsDoNotOverflow) {
  const int64_t k = 2 * kMostBytePairs + 8198;
  const Tensor x = Tensor::full({1, 1, k}, 8191.0 / 8192.0);
  const auto sum = static_cast<float>(k * 8191 * 8191);
  everywhere([&] {
    const Quantized w = quantize_weight(sent(x)), rows = quantize_rows(sent(x), w.channels);
    EXPECT_TRUE(same_bits(exact_matmul(rows, w).to(Device{}), Tensor::full({1, 1}, std::ldexp(sum, -26))));
  });
}

TEST(ExactPlan, CutsSumsThatAreTooLongAndThoseOfFewTiles) {
  constexpr GpuExtent kH200{.multiprocessors = 132, .scratch = 256 << 20};
  const auto slices = [&](int64_t m, int64_t n, int64_t k) {
    const ExactPlan plan = plan_exact_product(m, n, k, 1, kLargeTilesOfPairs, kH200);
    EXPECT_LE(plan.slice, kMostBytePairs);
    EXPECT_GE(plan.slices * plan.slice, k);
    EXPECT_LT((plan.slices - 1) * plan.slice, std::max<int64_t>(k, 1));
    return plan.slices;
  };
  EXPECT_EQ(slices(4096, 4096, 2048), 1);
  EXPECT_EQ(slices(64, 576, 16384), 29);
  EXPECT_EQ(slices(10, 1, 300), 1) << "too short";
  EXPECT_EQ(slices(6400, 6400, kMostBytePairs + 1), 2);
  EXPECT_EQ(slices(1, 1, 0), 1);
}

TEST(ExactPlan, HasLargeTilesWhereTheyFillTheGpu) {
  constexpr GpuExtent kH200{.multiprocessors = 132, .scratch = 256 << 20};
  const auto side = [&](int64_t m, int64_t n, int64_t k, const LargeTiles& large = kLargeTilesOfPairs) {
    return plan_exact_product(m, n, k, 1, large, kH200).side;
  };
  EXPECT_EQ(side(4096, 4096, 2048), 128);
  EXPECT_EQ(side(8192, 768, 1152), 128);
  EXPECT_EQ(side(4096, 4096, 2048, kNoLargeTiles), 64) << "there may be none";
  EXPECT_EQ(side(100000, 64, 288), 64) << "half of a large tile would be empty";
  EXPECT_EQ(side(640, 640, 128), 64) << "too few tiles";
  EXPECT_EQ(side(8192, 768, 25129, large_tiles_of_chunks((8192 + 768) * 25129)), 128);
  EXPECT_EQ(side(100000, 64, 288, large_tiles_of_chunks(100000 * 32)), 64) << "chunks cost more than they save";
}

struct Convolution {
  Shape x, w;
  ConvOptions options;
};

TEST_P(ExactProducts, OfConvolutionsAreExactSums) {
  const std::vector<Convolution> all{
      {{3, 9, 8, 5}, {7, 3, 3, 5}, {.pad_h = 1, .pad_w = 1}},
      {{4, 12, 12, 16}, {24, 3, 3, 16}, {.pad_h = 1, .pad_w = 1}},
      {{2, 11, 10, 3}, {6, 7, 5, 3}, {.stride_h = 2, .stride_w = 2, .pad_h = 3, .pad_w = 2}},
      {{3, 13, 12, 5}, {20, 3, 4, 5}, {.stride_h = 2, .pad_h = 1, .pad_w = 2, .dilation_w = 2}},
      {{2, 17, 16, 4}, {70, 5, 5, 4}, {.stride_h = 2, .stride_w = 2, .pad_h = 2, .pad_w = 2}},
      {{4, 100, 100, 2}, {8, 3, 3, 2}, {.stride_h = 2, .pad_h = 1, .pad_w = 1}},  // two groups of chunks
      {{5, 8, 8, 20}, {34, 1, 1, 20}, {}},
      {{1, 9, 9, 40}, {12, 1, 1, 40}, {.stride_h = 2, .stride_w = 2}},
      {{3, 10, 9, 8}, {12, 3, 3, 4}, {.pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 2, .groups = 2}},
      {{1, 7, 7, 128}, {60, 3, 3, 128}, {.pad_h = 1, .pad_w = 1}},
      {{1, 7, 7, 60}, {128, 3, 3, 60}, {.pad_h = 1, .pad_w = 1}},
      {{1, 5, 4, 240}, {10, 3, 3, 240}, {.pad_h = 1, .pad_w = 1}},  // two chunks of channels and taps
      {{2, 92, 92, 4}, {6, 1, 1, 4}, {}},                           // two groups of positions
      {{2, 23, 23, 60}, {56, 1, 1, 60}, {}},
      {{2, 30, 31, 6}, {10, 3, 3, 6}, {.pad_h = 1, .pad_w = 1}},
      {{2, 6, 31, 70}, {130, 3, 3, 70}, {.pad_h = 1, .pad_w = 1}},
      {{2, 8, 9, 72}, {136, 3, 3, 72}, {.pad_h = 1, .pad_w = 1}},
      {{16, 3, 4, 80}, {96, 2, 2, 80}, {.pad_h = 1, .pad_w = 1}},
      {{16, 8, 7, 80}, {80, 2, 2, 80}, {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1}}};
  for (const Magnitudes values : kAllMagnitudes)
    for (const auto& [xs, ws, o] : all) {
      if (xs.numel() > (values != Magnitudes::normal ? 5000 : 80000)) continue;
      SCOPED_TRACE(fmt::format("{} {}", to_string(xs), to_string(ws)));
      const ConvGeometry g = conv_geometry(xs, ws, o);
      const int64_t taps = g.kh * g.kw, cg = g.c / g.groups, og = g.o / g.groups;
      const Tensor x = random_factor(xs, 1, values).reshape({g.n, g.h * g.w, g.c}),
                   w = random_factor(ws, 2, values).reshape({g.o, taps, cg}),
                   dy = random_factor({g.n, g.oh * g.ow, g.o}, 3, values),
                   bias = g.o % 16 != 0 ? random_factor({g.o}, 4) : Tensor{};
      const Quantized weight = quantize_weight(w, g.groups), images = quantize_rows(x, weight.channels),
                      gradient = quantize_rows(dy, weight.rows), columns = quantize_channels(dy, images.rows);
      std::vector<int64_t> y(static_cast<size_t>(dy.numel())), dx(static_cast<size_t>(x.numel())),
          dw(static_cast<size_t>(w.numel()));
      for (int64_t n = 0; n < g.n; ++n)
        for (int64_t p = 0; p < g.oh * g.ow; ++p)
          for (int64_t t = 0; t < taps; ++t) {
            const int64_t iy = p / g.ow * g.stride_h - g.pad_h + t / g.kw * g.dilation_h,
                          ix = p % g.ow * g.stride_w - g.pad_w + t % g.kw * g.dilation_w;
            if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) continue;
            for (int64_t q = 0; q < g.o; ++q)
              for (int64_t c = 0; c < cg; ++c) {
                const int64_t channel = q / og * cg + c, pixel = iy * g.w + ix, filter = integer_at(weight, q, t, c),
                              value = integer_at(images, n, pixel, channel);
                y[static_cast<size_t>((n * g.oh * g.ow + p) * g.o + q)] += value * filter;
                dx[static_cast<size_t>((n * g.h * g.w + pixel) * g.c + channel)] +=
                    integer_at(gradient, n, p, q) * filter;
                dw[static_cast<size_t>((q * taps + t) * cg + c)] += integer_at(columns, n, p, q) * value;
              }
          }
      const auto result = [](const std::vector<int64_t>& sums, const Shape& shape, auto exponent) {
        Tensor t = Tensor::empty(shape, DType::f32);
        for (size_t i = 0; i < sums.size(); ++i)
          t.data<float>()[i] = finished_sum(sums[i], exponent(static_cast<int64_t>(i)));
        return t;
      };
      const auto e = [](const Tensor& exponents, int64_t i) { return int64_t{exponents.data<int32_t>()[i]}; };
      Tensor expected_y = result(y, {g.n, g.oh, g.ow, g.o}, [&](int64_t i) {
        return e(images.rows, i / (g.oh * g.ow * g.o)) + e(weight.rows, i % g.o);
      });
      for (int64_t i = 0; i < expected_y.numel() && bias.defined(); ++i)
        expected_y.data<float>()[i] += bias.data<float>()[i % g.o];
      const Tensor expected_dx = result(
          dx, xs, [&](int64_t i) { return e(gradient.rows, i / (g.h * g.w * g.c)) + e(weight.channels, i % g.c); });
      const Tensor before = random_factor(xs, 5), expected_sum = add(before, expected_dx);
      const Tensor expected_dw = result(dw, ws, [&](int64_t i) {
        const int64_t q = i / (taps * cg);
        return e(columns.channels, q) + e(images.channels, q / og * cg + i % cg);
      });
      everywhere([&] {
        const Quantized w_again = quantize_weight(sent(w), g.groups),
                        x_again = quantize_rows(sent(x), w_again.channels),
                        by_channels = quantize_rows(sent(dy), w_again.rows),
                        by_rows = quantize_channels(sent(dy), x_again.rows);
        EXPECT_TRUE(same_bits(
            exact_conv2d(x_again, w_again, bias.defined() ? sent(bias) : bias, xs, ws, o).to(Device{}), expected_y));
        EXPECT_TRUE(
            same_bits(exact_conv2d_grad_input(by_channels, pair_rows(w_again), xs, ws, o).to(Device{}), expected_dx));
        for (const bool shared : {false, true}) {  // whether there is another handle on the sum
          Tensor sum = shared ? sent(before) : sent(before).clone();
          const Tensor handle = shared ? sum : Tensor{};
          sum = exact_conv2d_grad_input(by_channels, pair_rows(w_again), xs, ws, o, std::move(sum));
          EXPECT_TRUE(same_bits(sum.to(Device{}), expected_sum));
        }
        EXPECT_TRUE(
            same_bits(exact_conv2d_grad_filter(by_rows, pair_rows(x_again), xs, ws, o).to(Device{}), expected_dw));
      });
    }
}

}  // namespace
}  // namespace elinvar::test
