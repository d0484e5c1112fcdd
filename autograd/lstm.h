#pragma once
// Recurrent functions along sequences whose first dimension is the time.
#include "autograd/var.h"

namespace elinvar {

// gates (T, N, 4 H), linear functions of the input at each step; weight (4 H, H); bias (4 H) -> h (T, N, H), from a
// state of zeros. tensor/ops/lstm.h has the formulas. Products are portable in every precision (NUMERICS.md, rule 8).
Var lstm(const Var& gates, const Var& weight, const Var& bias);

}  // namespace elinvar
