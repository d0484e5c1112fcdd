#pragma once
// The residual stream of a transformer, to which each branch adds. The sum is not made when the branch ends, but by the
// norm with which the next one begins (nn/norm.h), in the same pass over memory.
//
//   Residual x = embedding(tokens);
//   x += attend(ln_1(x));
//   x += perceptron(ln_2(x));    // ln_2 makes x + attend(..), and normalises it
//   return head(ln_f(x));
//
// The bits, of gradients too, are those of sums that are made at once.
#include <utility>

#include "autograd/norm.h"
#include "autograd/pointwise.h"

namespace elinvar {

class Residual {
 public:
  Residual(Var start) : sum_(std::move(start)) {}

  // The stream as a value, for whatever is not such a norm. A sum that is not made yet is made by each such use.
  operator Var() const { return addend_.defined() ? sum_ + addend_ : sum_; }

  // A branch of the stream's shape.
  Residual& operator+=(Var branch) {
    sum_ = *this;
    addend_ = std::move(branch);
    return *this;
  }

  // norm(x) where the sum is made, else that of add_norm(x, addend), which gives both.
  template <class Norm, class AddNorm>
  Var normalised(const Norm& norm, AddNorm add_norm) {
    if (!addend_.defined()) return norm(sum_);
    SumAndNorm made = add_norm(sum_, std::exchange(addend_, {}));
    sum_ = std::move(made.sum);
    return std::move(made.norm);
  }

 private:
  Var sum_, addend_;  // an addend that is defined has yet to be added
};

}  // namespace elinvar
