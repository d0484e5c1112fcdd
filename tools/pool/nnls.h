#pragma once
// Non-negative least squares, for a handful of unknowns.
#include <vector>

namespace elinvar::pool {

using Matrix = std::vector<std::vector<double>>;  // rows

// The x >= 0 with the least |A x - y|^2 (Lawson and Hanson, "Solving least squares problems", 1974, chapter 23), on the
// normal equations: the columns of A must be independent, and far from dependent. Rows of A are as long as each other.
std::vector<double> nnls(const Matrix& a, const std::vector<double>& y);

// (A^T A)^-1.
Matrix inverse_of_gram(const Matrix& a);

}  // namespace elinvar::pool
