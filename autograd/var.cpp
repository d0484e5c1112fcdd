#include "autograd/var.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/precision.h"
#include "autograd/recompute.h"
#include "tensor/base/check.h"
#include "tensor/ops/pointwise.h"
#include "tensor/trace.h"

namespace elinvar {

struct Var::Node {
  Tensor value;  // of a leaf
  Tensor grad;
  Shape shape;
  std::optional<Shape> grad_shape;  // of a leaf whose gradient has another shape than its value
  DType dtype = DType::f32;
  bool requires_grad = false;
  bool leaf = true;  // not a result of record()
  uint64_t id = 0;   // order of creation
  std::vector<std::shared_ptr<Node>> inputs;
  Backward backward;
  std::shared_ptr<std::weak_ptr<const Quantized>> rounded;  // made when it is needed

  // A graph that was never swept is destroyed here one node at a time: recursive destructors would need as much stack
  // as the graph is deep.
  ~Node() {
    std::vector<std::shared_ptr<Node>> pending = std::move(inputs);
    backward = nullptr;
    while (!pending.empty()) {
      const std::shared_ptr<Node> node = std::move(pending.back());
      pending.pop_back();
      if (!node || node.use_count() > 1) continue;
      std::move(node->inputs.begin(), node->inputs.end(), std::back_inserter(pending));
      node->inputs.clear();
      node->backward = nullptr;
    }
  }
};

struct Var::Source {
  Origin origin;
  Tensor value;  // of a deferred result, once it is computed
};

using NodePtr = std::shared_ptr<Var::Node>;

namespace {

thread_local bool recording = true;

struct Recording {
  explicit Recording(bool on) : before(std::exchange(recording, on)) {}
  ~Recording() { recording = before; }
  bool before;
};

uint64_t next_id() {
  static std::atomic<uint64_t> id{0};
  return ++id;
}

void accumulate(Tensor& sum, Tensor term) { sum = sum.defined() ? add_to(std::move(sum), term) : std::move(term); }

}  // namespace

Var::Var(Tensor value, bool requires_grad) : node_(std::make_shared<Node>()) {
  node_->value = std::move(value);
  node_->requires_grad = requires_grad;
  node_->id = next_id();
}

const Tensor& Var::value() const {
  check(defined(), "[autograd] the variable is undefined");
  if (node_->leaf) return node_->value;
  if (value_.defined() || !source_) return value_;
  if (!source_->value.defined()) source_->value = source_->origin.compute();
  return source_->value;
}
const Origin* Var::origin() const { return source_ ? &source_->origin : nullptr; }
const Shape& Var::shape() const {
  check(defined(), "[autograd] the variable is undefined");
  return node_->leaf ? node_->value.shape() : node_->shape;
}
DType Var::dtype() const {
  check(defined(), "[autograd] the variable is undefined");
  return node_->leaf ? node_->value.dtype() : node_->dtype;
}
Tensor& Var::mutable_value() {
  check(defined() && node_->leaf, "[autograd] only a leaf can be written");
  return node_->value;
}
const Tensor& Var::grad() const {
  check(defined(), "[autograd] the variable is undefined");
  return node_->grad;
}
void Var::clear_grad() {
  check(defined(), "[autograd] the variable is undefined");
  node_->grad = {};
}
void Var::set_grad(Tensor grad) {
  check(defined() && node_->leaf, "[autograd] only a leaf has a gradient that can be set");
  node_->grad = std::move(grad);
}
const Shape& Var::grad_shape() const {
  check(defined() && node_->leaf, "[autograd] only a leaf has a gradient with a shape of its own");
  return node_->grad_shape ? *node_->grad_shape : node_->value.shape();
}
void Var::set_grad_shape(const Shape& shape) {
  check(defined() && node_->leaf, "[autograd] only a leaf has a gradient with a shape of its own");
  node_->grad_shape = shape;
}
std::weak_ptr<const Quantized>* Var::rounded() const {
  check(defined(), "[autograd] the variable is undefined");
  if (node_->leaf) return nullptr;
  if (!node_->rounded) node_->rounded = std::make_shared<std::weak_ptr<const Quantized>>();
  return node_->rounded.get();
}
void Var::share_rounded(const Var& equal) {
  if (equal.rounded()) node_->rounded = equal.node_->rounded;
}
bool Var::requires_grad() const { return defined() && node_->requires_grad; }

Var record_deferred(const Shape& shape, DType dtype, Origin origin, std::vector<Var> inputs, Backward backward) {
  const bool needed =
      recording && std::any_of(inputs.begin(), inputs.end(), [](const Var& v) { return v.requires_grad(); });
  Var result({}, needed);
  Var::Node& node = *result.node_;
  node.leaf = false;
  node.shape = shape;
  node.dtype = dtype;
  if (origin.compute) result.source_ = std::make_shared<Var::Source>(Var::Source{std::move(origin), {}});
  if (needed) {
    for (Var& input : inputs) node.inputs.push_back(std::move(input.node_));
    node.backward = std::move(backward);
  }
  return result;
}

Var record(Tensor value, std::vector<Var> inputs, Backward backward, Origin origin) {
  Var result = record_deferred(value.shape(), value.dtype(), std::move(origin), std::move(inputs), std::move(backward));
  result.value_ = std::move(value);
  if (!result.requires_grad()) result.source_ = nullptr;  // it would keep what only a gradient needs
  return result;
}

Tensor gathered(const Var& input) { return input.requires_grad() ? std::exchange(input.node()->grad, {}) : Tensor{}; }

namespace {

// Pushes the gradient `seed` of `root` back to the leaves. With `adds`, adds to gradients that leaves have.
void sweep(NodePtr root, Tensor seed, const std::function<void(const Var&)>& leaf_ready, bool adds = false) {
  // The number of contributions that each node still awaits.
  std::unordered_map<Var::Node*, int> missing;
  std::vector<NodePtr> stack{root};
  missing[root.get()] = 0;
  while (!stack.empty()) {
    const NodePtr node = std::move(stack.back());
    stack.pop_back();
    check(node->leaf || node->backward, "[backward] an earlier sweep has released this graph; compute the loss again");
    for (const NodePtr& input : node->inputs) {
      if (!input || !input->requires_grad) continue;
      if (missing[input.get()]++ > 0) continue;
      if (!adds) input->grad = {};  // the gradient of a leaf that an earlier sweep reached
      stack.push_back(input);
    }
  }

  const auto older = [](const NodePtr& a, const NodePtr& b) { return a->id < b->id; };
  std::priority_queue<NodePtr, std::vector<NodePtr>, decltype(older)> ready(older);
  // A leaf is complete with its last contribution, although it is older than everything computed from it.
  const auto complete = [&](NodePtr node) {
    if (!node->leaf) ready.push(std::move(node));
    else if (leaf_ready) leaf_ready(Var(node));
  };
  root->grad = std::move(seed);
  complete(std::move(root));
  while (!ready.empty()) {
    const NodePtr node = ready.top();
    ready.pop();
    const std::vector<NodePtr> inputs = std::exchange(node->inputs, {});
    const Backward gradient = std::exchange(node->backward, nullptr);
    Tensor dy = std::exchange(node->grad, {});
    std::vector<Tensor> grads = dy.defined() ? gradient(std::move(dy)) : std::vector<Tensor>(inputs.size());
    invariant(grads.size() == inputs.size(), "a gradient function returns one tensor for each input");
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i] || !inputs[i]->requires_grad) continue;
      Var::Node& input = *inputs[i];
      if (grads[i].defined()) {
        const Shape& shape = input.leaf ? Var(inputs[i]).grad_shape() : input.shape;
        const DType dtype = input.leaf ? input.value.dtype() : input.dtype;
        check(grads[i].shape() == shape, "[backward] gradient of shape {} for an input of shape {}",
              to_string(grads[i].shape()), to_string(shape));
        if (grads[i].dtype() != dtype) grads[i] = grads[i].to(dtype);
        accumulate(input.grad, std::move(grads[i]));
      }
      if (--missing[&input] == 0) complete(inputs[i]);
    }
  }
}

// Returns the leaves, except `except`, from which y was computed and that require a gradient.
std::vector<Var> leaves_under(const Var& y, const Var& except) {
  std::vector<Var> found;
  std::vector<NodePtr> stack{y.node()};
  std::unordered_set<Var::Node*> seen{y.node().get(), except.node().get()};
  while (!stack.empty()) {
    const NodePtr node = std::move(stack.back());
    stack.pop_back();
    if (node->leaf && node != except.node()) found.push_back(Var(node));
    for (const NodePtr& input : node->inputs)
      if (input && input->requires_grad && seen.insert(input.get()).second) stack.push_back(input);
  }
  return found;
}

}  // namespace

void backward(const Var& loss, const std::function<void(const Var&)>& leaf_ready) {
  check(loss.value().numel() == 1, "[backward] the loss must be one element, its shape is {}", to_string(loss.shape()));
  check(loss.requires_grad(), "[backward] nothing that the loss depends on requires a gradient");
  const TracePart part("backward");
  sweep(loss.node(), Tensor::full(loss.shape(), 1.0, loss.dtype(), loss.value().device()), leaf_ready);
}

void backward_part(const Var& result, Tensor dy, const std::function<void(const Var&)>& leaf_ready) {
  check(result.requires_grad(), "[backward] nothing that the result depends on requires a gradient");
  check(dy.shape() == result.shape(), "[backward] gradient of shape {} for a result of shape {}", to_string(dy.shape()),
        to_string(result.shape()));
  const TracePart part("backward");
  sweep(result.node(), std::move(dy), leaf_ready, /*adds=*/true);
}

// Records the first run like any other, to find the leaves that f reads, then drops the record.
Var recompute(std::function<Var(const Var&)> f, const Var& x, const KeepInput& keep) {
  if (!recording) return f(x);
  std::vector<Var> inputs{x};
  Tensor value;
  {
    const Var again(x.value(), x.requires_grad()), y = f(again);
    if (!y.requires_grad()) return y;
    for (const Var& leaf : leaves_under(y, again)) inputs.push_back(leaf);
    value = y.value();
  }
  const std::vector<Var> leaves(inputs.begin() + 1, inputs.end());
  std::function<Tensor()> input = keep ? keep(x.value()) : [value = x.value()] { return value; };
  return record(std::move(value), std::move(inputs),
                [f = std::move(f), leaves, input = std::move(input), need_x = x.requires_grad(),
                 precision = product_precision()](Tensor dy) {
                  const PrecisionScope same(precision);
                  const Var again(input(), need_x);
                  std::vector<Tensor> outer;  // contributions that the outer sweep has gathered so far
                  for (const Var& leaf : leaves) outer.push_back(std::exchange(leaf.node()->grad, {}));
                  const Recording on(true);
                  sweep(f(again).node(), std::move(dy), {});
                  std::vector<Tensor> grads{std::exchange(again.node()->grad, {})};
                  for (size_t i = 0; i < leaves.size(); ++i)
                    grads.push_back(std::exchange(leaves[i].node()->grad, std::move(outer[i])));
                  return grads;
                });
}

NoGrad::NoGrad() : previous_(recording) { recording = false; }
NoGrad::~NoGrad() { recording = previous_; }

}  // namespace elinvar
