#pragma once
// Compares tensors by bits, or with a tolerance against a float64 reference. Results convert to bool and state where
// the first or worst difference is, for EXPECT_TRUE.
#include <gtest/gtest.h>

#include "tensor/tensor.h"

namespace elinvar::test {

// Requires the same dtype, shape and bits in logical order. Signed zeros differ; any two NaNs are equal. With
// `finite_only`, skips elements that are not finite in b.
::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b, bool finite_only = false);

// Requires |a - reference| <= tolerance * max |reference| for each element; NaN and infinities must be equal.
::testing::AssertionResult close_to(const Tensor& a, const Tensor& reference, double tolerance);

}  // namespace elinvar::test
