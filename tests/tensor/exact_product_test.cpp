// Exact products: against the rule of tensor/quantized.h in int64, with every set of instructions and number of
// threads.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tests/support/bits.h"
#include "tests/tensor/exact_reference.h"

namespace elinvar::test {
namespace {

TEST(ExactProducts, RoundRowsByTheRule) {
  for (const Magnitudes values : {Magnitudes::normal, Magnitudes::largest, Magnitudes::mixed})
    for (const auto& [r, p, c] : {std::array<int64_t, 3>{5, 1, 7}, {3, 6, 4}, {40, 1, 130}, {1, 3000, 33}}) {
      const Tensor x = random_factor({r, p, c}, 1, values);
      Tensor against = Tensor::zeros({c}, DType::i32);
      for (int64_t i = 0; i < c; ++i)
        against.data<int32_t>()[i] = static_cast<int32_t>(i % 5 - (i % 3 == 0 ? 120 * (i % 2) : 0));
      const int32_t most = 4;
      with_every_kernel([&](const std::string& how) {
        SCOPED_TRACE(how);
        const Quantized y = quantize_rows(x, c > 4 ? against : Tensor::zeros({c}, DType::i32));
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

TEST(ExactProducts, OfMatricesAreExactSums) {
  for (const Magnitudes values : {Magnitudes::normal, Magnitudes::largest, Magnitudes::mixed})
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                  {5, 7, 3},
                                  {17, 65, 64},
                                  {33, 100, 2100},
                                  {2, 40, 1500},
                                  {70, 3, 1025},
                                  {9, 48, 31}}) {
      SCOPED_TRACE(fmt::format("{} x {} x {}", m, n, k));
      const Tensor x = random_factor({m, 1, k}, 1, values), w = random_factor({n, 1, k}, 2, values),
                   dy = random_factor({m, 1, n}, 3, values), bias = random_factor({n}, 4);
      const Quantized weight = quantize_weight(w), rows = quantize_rows(x, weight.channels),
                      gradient = quantize_rows(dy, weight.rows), columns = quantize_channels(dy, rows.rows);
      const Tensor y = product(rows, weight, m, n, k, bias), dx = product(gradient, pair_rows(weight), m, k, n, {}),
                   dw = product(columns, pair_rows(rows), n, k, m, {});
      with_every_kernel([&](const std::string& how) {
        SCOPED_TRACE(how);
        const Quantized w_again = quantize_weight(w), x_again = quantize_rows(x, w_again.channels);
        EXPECT_TRUE(same_bits(exact_matmul(x_again, w_again, bias), y));
        EXPECT_TRUE(same_bits(exact_matmul(quantize_rows(dy, w_again.rows), pair_rows(w_again)), dx));
        EXPECT_TRUE(same_bits(exact_matmul(quantize_channels(dy, x_again.rows), pair_rows(x_again)), dw));
      });
    }
}

struct Convolution {
  Shape x, w;
  ConvOptions options;
};

TEST(ExactProducts, OfConvolutionsAreExactSums) {
  const std::vector<Convolution> all{
      {{3, 9, 8, 5}, {7, 3, 3, 5}, {.pad_h = 1, .pad_w = 1}},
      {{4, 12, 12, 16}, {24, 3, 3, 16}, {.pad_h = 1, .pad_w = 1}},
      {{2, 11, 10, 3}, {6, 7, 5, 3}, {.stride_h = 2, .stride_w = 2, .pad_h = 3, .pad_w = 2}},
      {{5, 8, 8, 20}, {34, 1, 1, 20}, {}},
      {{1, 9, 9, 40}, {12, 1, 1, 40}, {.stride_h = 2, .stride_w = 2}},
      {{3, 10, 9, 8}, {12, 3, 3, 4}, {.pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 2, .groups = 2}},
      {{2, 30, 31, 6}, {10, 3, 3, 6}, {.pad_h = 1, .pad_w = 1}},
      {{2, 6, 31, 70}, {130, 3, 3, 70}, {.pad_h = 1, .pad_w = 1}}};
  for (const Magnitudes values : {Magnitudes::normal, Magnitudes::largest, Magnitudes::mixed})
    for (const auto& [xs, ws, o] : all) {
      if (values != Magnitudes::normal && xs.numel() > 20000) continue;
      SCOPED_TRACE(fmt::format("{} {}", to_string(xs), to_string(ws)));
      const ConvGeometry g = conv_geometry(xs, ws, o);
      const int64_t taps = g.kh * g.kw, cg = g.c / g.groups, og = g.o / g.groups;
      const Tensor x = random_factor(xs, 1, values).reshape({g.n, g.h * g.w, g.c}),
                   w = random_factor(ws, 2, values).reshape({g.o, taps, cg}),
                   dy = random_factor({g.n, g.oh * g.ow, g.o}, 3, values), bias = random_factor({g.o}, 4);
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
      for (int64_t i = 0; i < expected_y.numel(); ++i) expected_y.data<float>()[i] += bias.data<float>()[i % g.o];
      const Tensor expected_dx = result(
          dx, xs, [&](int64_t i) { return e(gradient.rows, i / (g.h * g.w * g.c)) + e(weight.channels, i % g.c); });
      const Tensor expected_dw = result(dw, ws, [&](int64_t i) {
        const int64_t q = i / (taps * cg);
        return e(columns.channels, q) + e(images.channels, q / og * cg + i % cg);
      });
      with_every_kernel([&](const std::string& how) {
        SCOPED_TRACE(how);
        const Quantized w_again = quantize_weight(w, g.groups), x_again = quantize_rows(x, w_again.channels);
        EXPECT_TRUE(same_bits(exact_conv2d(x_again, w_again, bias, xs, ws, o), expected_y));
        EXPECT_TRUE(same_bits(exact_conv2d_grad_input(quantize_rows(dy, w_again.rows), pair_rows(w_again), xs, ws, o),
                              expected_dx));
        EXPECT_TRUE(same_bits(
            exact_conv2d_grad_filter(quantize_channels(dy, x_again.rows), pair_rows(x_again), xs, ws, o), expected_dw));
      });
    }
}

}  // namespace
}  // namespace elinvar::test
