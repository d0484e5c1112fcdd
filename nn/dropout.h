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

}  // namespace elinvar
