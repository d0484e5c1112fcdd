// Products and convolutions compared with Eigen's in float64, an independent implementation of the same sums.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <Eigen/Core>

#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tests/ops/op_inputs.h"

namespace elinvar::test {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<const Matrix>;
using Eigen::Index;

constexpr double kRounding = 1e-13;  // relative to the largest element

double largest(const Matrix& m) { return m.size() == 0 ? 0 : m.cwiseAbs().maxCoeff(); }

// Returns a contiguous tensor as a matrix with this many columns.
View rows_of(const Tensor& x, Index columns) { return View(x.data<double>(), x.numel() / columns, columns); }

void expect_near(const Tensor& found, const Matrix& expected) {
  ASSERT_EQ(found.numel(), expected.size());
  const Matrix difference = rows_of(found, expected.cols()) - expected;
  EXPECT_LE(largest(difference), kRounding * std::max(1.0, largest(expected)));
}

TEST(EigenOracle, Products) {
  struct Case {
    int64_t m, n, k;
  };
  for (const auto& [m, n, k] :
       {Case{1, 1, 1}, Case{3, 5, 7}, Case{33, 17, 129}, Case{64, 64, 64}, Case{5, 300, 1000}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", m, n, k));
    const Tensor a = normal({m, k}, "a", DType::f64), b = normal({k, n}, "b", DType::f64);
    const Tensor bias = normal({n}, "bias", DType::f64);
    const Matrix product = rows_of(a, k) * rows_of(b, n);
    expect_near(matmul(a, b), product);
    expect_near(matmul(a, b, bias), product.rowwise() + Eigen::Map<const Eigen::RowVectorXd>(bias.data<double>(), n));
    expect_near(matmul(normal({k, m}, "t", DType::f64).permute({1, 0}), b),
                rows_of(normal({k, m}, "t", DType::f64), m).transpose() * rows_of(b, n));
  }
}

// A dimension of one element may have any stride: here that of one head, from before the permutation.
TEST(EigenOracle, ProductsOfBatchesWithDimensionsOfOne) {
  const Tensor queries = normal({3, 4, 1, 5}, "queries", DType::f64).permute({0, 2, 1, 3});
  const Tensor keys = normal({3, 6, 1, 5}, "keys", DType::f64).permute({0, 2, 3, 1});
  const Tensor scores = matmul(queries, keys);
  ASSERT_EQ(scores.shape(), Shape({3, 1, 4, 6}));
  for (int64_t i = 0; i < 3; ++i) {
    const auto part = [i](const Tensor& t) { return t.slice(0, i, i + 1).to_contiguous(); };
    expect_near(part(scores), rows_of(part(queries), 5) * rows_of(part(keys), 6));
  }
}

struct OracleConv {
  Shape x, w;
  ConvOptions options;
};

std::vector<OracleConv> conv_cases() {
  return {{{2, 5, 5, 3}, {4, 3, 3, 3}, {.pad_h = 1, .pad_w = 1}},
          {{1, 8, 6, 4}, {8, 1, 1, 4}, {}},
          {{2, 9, 7, 4}, {6, 3, 2, 4}, {.stride_h = 2, .stride_w = 1, .pad_h = 1, .pad_w = 0}},
          {{1, 11, 11, 2}, {3, 3, 3, 2}, {.pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 2}},
          {{2, 6, 6, 8}, {8, 3, 3, 2}, {.pad_h = 1, .pad_w = 1, .groups = 4}},
          {{2, 7, 7, 6}, {6, 3, 3, 1}, {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1, .groups = 6}},
          {{1, 20, 20, 16}, {32, 5, 5, 16}, {.pad_h = 2, .pad_w = 2}}};
}

// Calls visit(row, column, place in x) for each tap that falls into the image: row (n, oh, ow) and column (kh, kw, c)
// of the matrix of a group's patches.
template <class F>
void each_tap(const ConvGeometry& g, int64_t group, F visit) {
  const int64_t channels = g.c / g.groups;
  for (int64_t row = 0; row < g.n * g.oh * g.ow; ++row)
    for (int64_t column = 0; column < g.kh * g.kw * channels; ++column) {
      const int64_t n = row / (g.oh * g.ow), oh = row / g.ow % g.oh, ow = row % g.ow;
      const int64_t kh = column / channels / g.kw, kw = column / channels % g.kw, c = column % channels;
      const int64_t h = oh * g.stride_h - g.pad_h + kh * g.dilation_h,
                    w = ow * g.stride_w - g.pad_w + kw * g.dilation_w;
      if (h < 0 || h >= g.h || w < 0 || w >= g.w) continue;
      visit(row, column, ((n * g.h + h) * g.w + w) * g.c + group * channels + c);
    }
}

TEST(EigenOracle, Convolutions) {
  for (const OracleConv& test : conv_cases()) {
    SCOPED_TRACE(to_string(test.x) + " by " + to_string(test.w));
    const ConvGeometry g = conv_geometry(test.x, test.w, test.options);
    const Tensor x = normal(test.x, "x", DType::f64), w = normal(test.w, "w", DType::f64);
    const Tensor dy = normal({g.n, g.oh, g.ow, g.o}, "dy", DType::f64);
    const Index patch = g.kh * g.kw * g.c / g.groups, outputs = g.o / g.groups, rows = g.n * g.oh * g.ow;
    Matrix y(rows, g.o), dw(g.o, patch);
    Matrix dx = Matrix::Zero(1, x.numel());
    for (int64_t group = 0; group < g.groups; ++group) {
      Matrix patches = Matrix::Zero(rows, patch);
      each_tap(g, group, [&](Index row, Index column, int64_t at) { patches(row, column) = x.data<double>()[at]; });
      const auto filters = rows_of(w, patch).middleRows(group * outputs, outputs);
      const auto gradients = rows_of(dy, g.o).middleCols(group * outputs, outputs);
      y.middleCols(group * outputs, outputs) = patches * filters.transpose();
      dw.middleRows(group * outputs, outputs) = gradients.transpose() * patches;
      const Matrix spread = gradients * filters;
      each_tap(g, group, [&](Index row, Index column, int64_t at) { dx(0, at) += spread(row, column); });
    }
    expect_near(conv2d(x, w, {}, test.options), y);
    expect_near(conv2d_grad_input(dy, w, test.x, test.options), dx);
    expect_near(conv2d_grad_filter(dy, x, test.w, test.options), dw);
  }
}

}  // namespace
}  // namespace elinvar::test
