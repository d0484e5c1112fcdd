#pragma once
// Dropout that draws its mask from the context, so that the mask is a function of seed, step, virtual rank and the
// place in the forward pass.
#include "autograd/pointwise.h"
#include "nn/network.h"

namespace elinvar {

struct Dropout {
  double p = 0.0;

  Var operator()(const Var& x, Context& context) const {
    return context.training && p > 0.0 ? dropout(x, p, context.rng.next()) : x;
  }
};

// Stochastic depth (Huang et al., "Deep networks with stochastic depth"): leaves out a residual branch x (N, ..) of
// each sample with probability p, and scales that of the others by 1 / (1 - p).
struct StochasticDepth {
  double p = 0.0;

  Var operator()(const Var& x, Context& context) const {
    if (!context.training || p == 0.0) return x;
    Shape samples = Shape::filled(x.ndim(), 1);
    samples[0] = x.dim(0);
    return x * dropout(Var(Tensor::full(samples, 1.0, x.dtype(), x.value().device())), p, context.rng.next());
  }
};

}  // namespace elinvar
