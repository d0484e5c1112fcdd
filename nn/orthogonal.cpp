// init::orthogonal, in a file of its own because it compiles slowly.
#include <Eigen/Householder>
#include <cmath>

#include "nn/initializers.h"
#include "tensor/base/check.h"

namespace elinvar::init {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

namespace {

// Returns the Q (m, n) of a = Q R for a (m, n) with m >= n; the diagonal of R is positive, which makes Q unique.
// Applies one reflection at a time, because Eigen's HouseholderQR uses blocks, whose sums depend on cache sizes.
MatrixXd orthonormal_columns(MatrixXd a) {
  const Index m = a.rows(), n = a.cols();
  VectorXd taus(n), workspace(n);
  VectorXd signs(n);
  for (Index k = 0; k < n; ++k) {
    const Index below = m - k, right = n - k - 1;
    double diagonal = 0;
    a.col(k).tail(below).makeHouseholderInPlace(taus(k), diagonal);
    a(k, k) = diagonal;
    signs(k) = diagonal < 0 ? -1 : 1;
    a.bottomRightCorner(below, right).applyHouseholderOnTheLeft(a.col(k).tail(below - 1), taus(k), workspace.data());
  }
  MatrixXd q = MatrixXd::Identity(m, n);
  for (Index k = n - 1; k >= 0; --k)
    q.bottomRightCorner(m - k, n - k).applyHouseholderOnTheLeft(a.col(k).tail(m - k - 1), taus(k), workspace.data());
  for (Index k = 0; k < n; ++k) q.col(k) *= signs(k);
  return q;
}

}  // namespace

Initializer orthogonal(double gain) {
  return [gain](Tensor& weight, uint64_t key) {
    check(weight.ndim() >= 2 && weight.numel() > 0, "[init] a weight of two or more dimensions expected, shape is {}",
          to_string(weight.shape()));
    normal(1.0)(weight, key);
    float* w = weight.data<float>();
    const Index rows = weight.dim(0), columns = weight.numel() / rows;
    using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    Eigen::Map<RowMajor> values(w, rows, columns);
    const MatrixXd drawn = values.cast<double>();
    const MatrixXd q =
        rows < columns ? MatrixXd(orthonormal_columns(drawn.transpose()).transpose()) : orthonormal_columns(drawn);
    values = (gain * q).cast<float>();
  };
}

}  // namespace elinvar::init
