#pragma once
// Comparing tensors: by bits, and by closeness to a float64 reference. Results convert to bool and say where the
// first or worst difference is, for EXPECT_TRUE.
#include <gtest/gtest.h>

#include "tensor/tensor.h"

namespace elinvar::test {

// The same dtype, shape and bits in logical order; signed zeros differ, any two NaNs are the same. With
// `finite_only`, elements that are not finite in b are left out.
::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b, bool finite_only = false);

// |a - reference| <= tolerance * max |reference|, element by element; NaN and infinities must be equal.
::testing::AssertionResult close_to(const Tensor& a, const Tensor& reference, double tolerance);

}  // namespace elinvar::test
