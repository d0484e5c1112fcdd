#include "tools/pool/profiling/least_squares.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <vector>

#include "tensor/base/check.h"

namespace elinvar::pool {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// Index lists for views of the free unknowns.
Eigen::Map<const Eigen::VectorX<Index>> indices(const std::vector<Index>& free) {
  return {free.data(), static_cast<Index>(free.size())};
}

Eigen::LLT<MatrixXd> cholesky(const MatrixXd& gram) {
  Eigen::LLT<MatrixXd> factors(gram);
  check(factors.info() == Eigen::Success, "[pool] a fit of dependent columns");
  return factors;
}

// Solves for the `free` unknowns; the others are 0.
VectorXd solve_free(const MatrixXd& gram, const VectorXd& right, const std::vector<Index>& free) {
  VectorXd x = VectorXd::Zero(right.size());
  if (free.empty()) return x;
  const auto at = indices(free);
  const VectorXd solved = cholesky(gram(at, at)).solve(VectorXd(right(at)));
  x(at) = solved;
  return x;
}

}  // namespace

VectorXd nonnegative_least_squares(const MatrixXd& a, const VectorXd& y) {
  const MatrixXd gram = a.transpose() * a;
  const VectorXd right = a.transpose() * y;
  const Index n = gram.rows();
  const double flat = n == 0 ? 0 : 1e-12 * right.cwiseAbs().maxCoeff();
  VectorXd x = VectorXd::Zero(n);
  std::vector<Index> free;
  for (Index rounds = 0; rounds < 10 * n + 10; ++rounds) {
    // The unknown at 0 that would reduce the error most.
    VectorXd slope = right - gram * x;
    slope(indices(free)).setZero();
    Index next = 0;
    if (n == 0 || slope.maxCoeff(&next) <= flat) break;
    free.insert(std::lower_bound(free.begin(), free.end(), next), next);
    for (;;) {
      const VectorXd z = solve_free(gram, right, free);
      double part = 1;  // fraction of the way to z at which the first unknown reaches 0
      for (const Index i : free)
        if (z(i) <= 0) part = std::min(part, x(i) / (x(i) - z(i)));
      x += part * (z - x);
      if (part == 1) break;
      std::erase_if(free, [&](Index i) { return z(i) <= 0 && x(i) <= 1e-14 * std::abs(z(i)); });
      VectorXd kept = VectorXd::Zero(n);
      kept(indices(free)) = x(indices(free));
      x = kept;
    }
  }
  return x;
}

MatrixXd inverse_of_gram(const MatrixXd& a) {
  return cholesky(a.transpose() * a).solve(MatrixXd::Identity(a.cols(), a.cols()));
}

}  // namespace elinvar::pool
