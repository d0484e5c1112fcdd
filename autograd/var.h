#pragma once
// A Var is a tensor that records how it was computed, so that backward() can compute gradients. Copies are cheap and
// share the record. The record of a result does not hold the values from which it was computed, but for those that its
// gradient needs, so values that no gradient needs are freed during the forward pass. The other headers in autograd/
// declare differentiable functions; their sources define each gradient next to the forward pass, written in ops.
//
//   Var w(Tensor::zeros({3}), /*requires_grad=*/true);
//   Var loss = sum(w * w);
//   backward(loss);          // w.grad() is now 2 w
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

struct Quantized;

// How a value is computed again, in little time and with the same bits, from tensors that its gradient keeps anyway. A
// function that needs the value for its own gradient may keep this in place of it.
struct Origin {
  std::function<Tensor()> compute = {};
  // If these are defined, the value is fma(x, a, b) for each channel (the last dimension), and then relu() if
  // requested. A function that reads x can compute it on the way.
  Tensor x = {}, a = {}, b = {};
  bool relu = false;
};

class Var {
 public:
  Var() = default;
  // A leaf. A constant (requires_grad false) converts implicitly, so that tensors mix with variables.
  Var(Tensor value, bool requires_grad = false);

  bool defined() const { return node_ != nullptr; }
  const Tensor& value() const;   // computes it if it is deferred
  const Origin* origin() const;  // null if there is none
  Tensor& mutable_value();       // for leaves: optimisers write to it between steps
  const Tensor& grad() const;    // for leaves, after backward(); undefined if no gradient reached it
  void clear_grad();
  void set_grad(Tensor grad);  // for leaves: what backward_part() adds to
  // For leaves: the shape of the gradient, which is that of the value unless it is set. The gradient of a table may be
  // that of some of its rows (nn/touched_rows.h).
  const Shape& grad_shape() const;
  void set_grad_shape(const Shape& shape);
  bool requires_grad() const;
  // The value as a factor of exact products (exact_factor.h), while one of them keeps it, for the others. All copies
  // share it, and so do results that share_rounded() says are equal. Null for a leaf, whose value may change. On GPUs,
  // where no product looks for numbers of another, share_rounded() has no effect.
  std::weak_ptr<const Quantized>* rounded() const;
  void share_rounded(const Var& equal);

  const Shape& shape() const;
  int64_t dim(int i) const { return shape()[normalize_dim(i, ndim(), "dim")]; }
  int ndim() const { return shape().ndim(); }
  DType dtype() const;

  struct Node;
  const std::shared_ptr<Node>& node() const { return node_; }
  explicit Var(std::shared_ptr<Node> leaf) : node_(std::move(leaf)) {}

 private:
  friend Var record(Tensor, std::vector<Var>, std::function<std::vector<Tensor>(Tensor)>, Origin);
  friend Var record_deferred(const Shape&, DType, Origin, std::vector<Var>, std::function<std::vector<Tensor>(Tensor)>);
  struct Source;
  std::shared_ptr<Node> node_;
  Tensor value_;  // of a result; the value of a leaf is in its node, because an optimiser's change is for all copies
  std::shared_ptr<Source> source_;  // of a result that has an origin
};

// Maps the gradient of the result to the gradients of the inputs, in order; an undefined Tensor is zero. A gradient has
// the type of its value: the sweep converts others (a residual's float32 for a bfloat16 branch), and rounds each
// addition of two gradients of a bfloat16 value to bfloat16. A body should skip inputs that do not require a gradient.
// It is called once and may move from its captures. It may overwrite tensors to which it has the only handle
// (Tensor::unique).
using Backward = std::function<std::vector<Tensor>(Tensor dy)>;

// Takes the sum of the contributions to an input's gradient so far; undefined if there are none. A body can add its own
// contribution in its own pass and return the sum, which saves the sweep an addition.
Tensor gathered(const Var& input);

// Returns the result of a differentiable function. If no input requires a gradient, or inside NoGrad, it is a constant
// and `backward` is dropped.
Var record(Tensor value, std::vector<Var> inputs, Backward backward, Origin origin = {});

// The same for a value that is computed when value() is first called, and never if all its uses read the origin.
Var record_deferred(const Shape& shape, DType dtype, Origin origin, std::vector<Var> inputs, Backward backward);

// Sweeps from `loss`, which must have one element, in the reverse order of creation. Sets the gradient of each leaf to
// the sum of its contributions, added in that order. Calls `leaf_ready` once for each leaf that requires a gradient, as
// soon as its last contribution is added and before the sweep reaches older nodes; the callback may take the gradient.
// The sweep releases the graph, so a second one over any part of it is an error.
void backward(const Var& loss, const std::function<void(const Var& leaf)>& leaf_ready = {});

// The same from a result of any shape, whose gradient is `dy`. Adds to the gradients that leaves have from sweeps over
// later parts of the same computation, so that a computation may be swept in parts.
void backward_part(const Var& result, Tensor dy, const std::function<void(const Var& leaf)>& leaf_ready = {});

// While an object of this class lives, its thread records nothing.
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
