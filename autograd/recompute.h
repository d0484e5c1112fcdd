#pragma once
// Memory for time (Chen et al., arXiv:1604.06174): a part of a network whose intermediate values are not kept.
#include <functional>

#include "autograd/var.h"

namespace elinvar {

// f(x), of which nothing but x and the result stays: its gradient computes f(x) once more. f is called twice and must
// do the same both times. The bits of all gradients are those of f(x) itself, provided that a leaf which f reads (a
// parameter) is used by f alone or only once by f: what f adds to its gradient is added up before it joins the rest.
Var recompute(std::function<Var(const Var&)> f, const Var& x);

}  // namespace elinvar
