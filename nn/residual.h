#pragma once
// The residual stream of a transformer, to which each branch adds. The sum is computed not when a branch ends, but by
// the norm at the beginning of the next one (nn/norm.h), in the same pass over memory.
//
//   Residual x = embedding(tokens);
//   x += attend(ln_1(x));
//   x += perceptron(ln_2(x));    // ln_2 makes x + attend(..), and normalises it
//   return head(ln_f(x));
//
// Values and gradients have the same bits as with sums that are computed at once.
#include <utility>

#include "autograd/norm.h"
#include "autograd/pointwise.h"

namespace elinvar {

class Residual {
 public:
  Residual(Var start) : sum_(std::move(start)) {}

  // The stream as a value, for anything but such a norm. Each such use computes a sum that is still pending.
  operator Var() const { return addend_.defined() ? sum_ + addend_ : sum_; }

  const Shape& shape() const { return sum_.shape(); }

  // Adds a branch, which must have the stream's shape.
  Residual& operator+=(Var branch) {
    sum_ = *this;
    addend_ = std::move(branch);
    return *this;
  }

  // Returns norm(x) if no sum is pending; otherwise calls add_norm(x, addend), which returns the norm and the sum.
  template <class Norm, class AddNorm>
  Var normalised(const Norm& norm, AddNorm add_norm) {
    if (!addend_.defined()) return norm(sum_);
    SumAndNorm made = add_norm(sum_, std::exchange(addend_, {}));
    sum_ = std::move(made.sum);
    return std::move(made.norm);
  }

 private:
  Var sum_, addend_;  // addend_ is defined while its addition is pending
};

}  // namespace elinvar
