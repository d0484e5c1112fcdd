#pragma once
// Trades time for memory (Chen et al., arXiv:1604.06174): does not keep the intermediate values of a part of a network.
#include <functional>

#include "autograd/var.h"

namespace elinvar {

// Takes the value of x when the first run is over, and returns a function that gives it back to the second one.
using KeepInput = std::function<std::function<Tensor()>(Tensor)>;

// Returns f(x) and keeps only x, as `keep` says, and the result; the gradient computes f(x) again. f is called twice
// and must do the same both times. Gradients have the same bits as without recompute() if each parameter that f reads
// is used by f alone, or only once by f: the contributions of f are added up before they join the others.
Var recompute(std::function<Var(const Var&)> f, const Var& x, const KeepInput& keep = {});

}  // namespace elinvar
