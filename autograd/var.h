#pragma once
// Var: a tensor that remembers how it was computed, so that backward() can push gradients to where they are
// wanted. A cheap handle: copies share the node. Differentiable functions are declared in autograd/*.h beside
// this file; each records its gradient, written in ops, next to its forward pass.
//
//   Var w(Tensor::zeros({3}), /*requires_grad=*/true);
//   Var loss = sum(w * w);
//   backward(loss);          // w.grad() is now 2 w
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

class Var {
 public:
  Var() = default;
  // A leaf. A constant (requires_grad false) converts implicitly, so that tensors mix with variables.
  Var(Tensor value, bool requires_grad = false);

  bool defined() const { return node_ != nullptr; }
  const Tensor& value() const;
  Tensor& mutable_value();     // of a leaf: the optimiser writes here, between steps
  const Tensor& grad() const;  // of a leaf, after backward; undefined if nothing reached it
  void clear_grad();
  bool requires_grad() const;

  const Shape& shape() const { return value().shape(); }
  int64_t dim(int i) const { return value().dim(i); }
  int ndim() const { return value().ndim(); }
  DType dtype() const { return value().dtype(); }

  struct Node;
  const std::shared_ptr<Node>& node() const { return node_; }

 private:
  friend Var record(Tensor, std::vector<Var>, std::function<std::vector<Tensor>(Tensor)>);
  std::shared_ptr<Node> node_;
};

// Maps the gradient of the result to the gradients of the inputs, in order; an undefined Tensor is a zero. A gradient
// has the type of its value: one of another type (a residual's float32 for a branch of bfloat16) the sweep converts,
// and where several reach a bfloat16 value each addition of two of them is rounded to bfloat16. A body should skip the
// work for an input that does not require a gradient. It is called once, and may move out of what it captured. What it
// is handed or holds as the only handle (Tensor::unique) it may write over: by then the sweep has let go of every value
// that nobody else can reach, the result's and those of inputs.
using Backward = std::function<std::vector<Tensor>(Tensor dy)>;

// What has reached the gradient of an input so far, taken out of it, or none: for a body that adds its own to that on
// the way, rather than have the sweep add them in a pass of its own, and returns the sum.
Tensor gathered(const Var& input);

// The result of a differentiable function. Without an input that requires a gradient, or inside NoGrad, it is a
// constant and `backward` is dropped along with what it captured.
Var record(Tensor value, std::vector<Var> inputs, Backward backward);

// Reverse sweep from `loss`, a single element, in the opposite order of creation. Gradients of leaves are set to
// the sum of their contributions, added in that order; `leaf_ready` is called once for each leaf that requires a
// gradient, as soon as its last contribution is in, while the sweep has still to reach older ones; it may take the
// gradient away. The graph is released on the way, so a second sweep over any part of it is an error.
void backward(const Var& loss, const std::function<void(const Var& leaf)>& leaf_ready = {});

// Nothing is recorded in this thread while one of these is in scope.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

}  // namespace elinvar
