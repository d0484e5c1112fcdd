#include "tools/pool/nnls.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"

namespace elinvar::pool {
namespace {

// G x = h for a symmetric positive definite G, by Cholesky's decomposition.
std::vector<double> solve(Matrix g, std::vector<double> h) {
  const size_t n = h.size();
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j) {
      double sum = g[i][j];
      for (size_t k = 0; k < j; ++k) sum -= g[i][k] * g[j][k];
      check(i != j || sum > 0, "[pool] a fit of dependent columns");
      g[i][j] = i == j ? std::sqrt(sum) : sum / g[j][j];
    }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) h[i] -= g[i][k] * h[k];
    h[i] /= g[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) h[i] -= g[k][i] * h[k];
    h[i] /= g[i][i];
  }
  return h;
}

Matrix gram(const Matrix& a) {
  const size_t n = a.empty() ? 0 : a[0].size();
  Matrix g(n, std::vector<double>(n, 0));
  for (const std::vector<double>& row : a)
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) g[i][j] += row[i] * row[j];
  return g;
}

// The least squares over the unknowns that are `free`; the others are 0.
std::vector<double> solve_free(const Matrix& g, const std::vector<double>& h, const std::vector<bool>& free) {
  std::vector<size_t> at;
  for (size_t i = 0; i < free.size(); ++i)
    if (free[i]) at.push_back(i);
  Matrix part(at.size(), std::vector<double>(at.size()));
  std::vector<double> right(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    right[i] = h[at[i]];
    for (size_t j = 0; j < at.size(); ++j) part[i][j] = g[at[i]][at[j]];
  }
  right = solve(std::move(part), std::move(right));
  std::vector<double> x(free.size(), 0);
  for (size_t i = 0; i < at.size(); ++i) x[at[i]] = right[i];
  return x;
}

}  // namespace

std::vector<double> nnls(const Matrix& a, const std::vector<double>& y) {
  const Matrix g = gram(a);
  const size_t n = g.size();
  std::vector<double> h(n, 0), x(n, 0);
  for (size_t r = 0; r < a.size(); ++r)
    for (size_t i = 0; i < n; ++i) h[i] += a[r][i] * y[r];
  double scale = 0;
  for (const double v : h) scale = std::max(scale, std::abs(v));
  std::vector<bool> free(n, false);
  for (size_t rounds = 0; rounds < 10 * n + 10; ++rounds) {
    // The unknown at 0 that would lower the error most.
    size_t next = n;
    double steepest = 1e-12 * scale;
    for (size_t i = 0; i < n; ++i) {
      if (free[i]) continue;
      double slope = h[i];
      for (size_t j = 0; j < n; ++j) slope -= g[i][j] * x[j];
      if (slope > steepest) steepest = slope, next = i;
    }
    if (next == n) break;
    free[next] = true;
    for (;;) {
      const std::vector<double> z = solve_free(g, h, free);
      double way = 1;
      for (size_t i = 0; i < n; ++i)
        if (free[i] && z[i] <= 0) way = std::min(way, x[i] / (x[i] - z[i]));
      for (size_t i = 0; i < n; ++i)
        if (free[i]) x[i] += way * (z[i] - x[i]);
      if (way == 1) break;
      for (size_t i = 0; i < n; ++i)
        if (free[i] && z[i] <= 0 && x[i] <= 1e-14 * std::abs(z[i])) free[i] = false, x[i] = 0;
    }
  }
  return x;
}

Matrix inverse_of_gram(const Matrix& a) {
  const Matrix g = gram(a);
  Matrix inverse;
  for (size_t i = 0; i < g.size(); ++i) {
    std::vector<double> unit(g.size(), 0);
    unit[i] = 1;
    inverse.push_back(solve(g, unit));
  }
  return inverse;
}

}  // namespace elinvar::pool
