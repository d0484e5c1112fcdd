#pragma once
// Sums, means and extrema over the given dimensions; sums and means are over all dimensions if none is given.
#include "autograd/var.h"

namespace elinvar {

Var sum(const Var& x, std::vector<int> dims = {}, bool keepdim = false);
Var mean(const Var& x, std::vector<int> dims = {}, bool keepdim = false);
Var max(const Var& x, int dim, bool keepdim = false);  // the gradient goes to the lowest index at ties
Var min(const Var& x, int dim, bool keepdim = false);
Var softmax(const Var& x);      // last dimension
Var log_softmax(const Var& x);  // last dimension

}  // namespace elinvar
