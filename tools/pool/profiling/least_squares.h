#pragma once
// Non-negative least squares, for a handful of unknowns.
#include <Eigen/Core>

namespace elinvar::pool {

// Returns the x >= 0 with the least |A x - y|^2 (Lawson and Hanson, "Solving least squares problems", 1974, chapter
// 23), on the normal equations. A is (equations, unknowns); its columns must be independent, and far from dependent:
// UsageError otherwise.
Eigen::VectorXd nonnegative_least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& y);

// Returns (A^T A)^-1, the covariance of the unknowns if the equations have errors of deviation 1.
Eigen::MatrixXd inverse_of_gram(const Eigen::MatrixXd& a);

}  // namespace elinvar::pool
