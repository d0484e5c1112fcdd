#pragma once
// Non-negative least squares, for a handful of unknowns.
#include <Eigen/Core>

namespace elinvar::pool {

// Returns the x >= 0 with the least |A x - y|^2 (Lawson and Hanson, "Solving least squares problems", 1974, chapter
// 23), computed from the normal equations. A is (equations, unknowns). Throws UsageError if its columns are dependent
// or nearly so.
Eigen::VectorXd nonnegative_least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& y);

// Returns (A^T A)^-1, the covariance of the unknowns if the errors of the equations have variance 1.
Eigen::MatrixXd inverse_of_gram(const Eigen::MatrixXd& a);

}  // namespace elinvar::pool
