#include "autograd/var.h"

#include <algorithm>
#include <atomic>
#include <iterator>
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
  Tensor value, grad;
  bool requires_grad = false;
  bool leaf = true;  // not a result of record()
  uint64_t id = 0;   // order of creation
  std::vector<Var> inputs;
  Backward backward;

  // A graph that was never swept is destroyed here one node at a time: recursive destructors would need as much stack
  // as the graph is deep.
  ~Node() {
    std::vector<Var> pending = std::move(inputs);
    backward = nullptr;
    while (!pending.empty()) {
      const Var last = std::move(pending.back());
      pending.pop_back();
      if (!last.defined() || last.node_.use_count() > 1) continue;
      Node& node = *last.node_;
      std::move(node.inputs.begin(), node.inputs.end(), std::back_inserter(pending));
      node.inputs.clear();
      node.backward = nullptr;
    }
  }
};

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

// Frees the value of a result that only the sweep can still reach, because all nodes computed from it are done.
void let_go(const Var& v) {
  if (!v.node()->leaf && v.node().use_count() == 1) v.node()->value = {};
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
  return node_->value;
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
bool Var::requires_grad() const { return defined() && node_->requires_grad; }

Var record(Tensor value, std::vector<Var> inputs, Backward backward) {
  const bool needed =
      recording && std::any_of(inputs.begin(), inputs.end(), [](const Var& v) { return v.requires_grad(); });
  Var result(std::move(value), needed);
  result.node_->leaf = false;
  if (needed) {
    result.node_->inputs = std::move(inputs);
    result.node_->backward = std::move(backward);
  }
  return result;
}

Tensor gathered(const Var& input) { return input.requires_grad() ? std::exchange(input.node()->grad, {}) : Tensor{}; }

namespace {

// Pushes the gradient `seed` of `root` back to the leaves.
void sweep(Var root, Tensor seed, const std::function<void(const Var&)>& leaf_ready) {
  // The number of contributions that each node still awaits.
  std::unordered_map<Var::Node*, int> missing;
  std::vector<Var> stack{root};
  missing[root.node().get()] = 0;
  while (!stack.empty()) {
    const Var v = std::move(stack.back());
    stack.pop_back();
    check(v.node()->leaf || v.node()->backward,
          "[backward] an earlier sweep has released this graph; compute the loss again");
    for (const Var& input : v.node()->inputs) {
      if (!input.requires_grad()) continue;
      if (missing[input.node().get()]++ > 0) continue;
      input.node()->grad = {};  // the gradient of a leaf that an earlier sweep reached
      stack.push_back(input);
    }
  }

  const auto older = [](const Var& a, const Var& b) { return a.node()->id < b.node()->id; };
  std::priority_queue<Var, std::vector<Var>, decltype(older)> ready(older);
  // A leaf is complete with its last contribution, although it is older than everything computed from it.
  const auto complete = [&](Var v) {
    if (!v.node()->leaf) ready.push(std::move(v));
    else if (leaf_ready) leaf_ready(v);
  };
  root.node()->grad = std::move(seed);
  complete(std::move(root));
  while (!ready.empty()) {
    const Var v = ready.top();
    ready.pop();
    Var::Node& node = *v.node();
    const std::vector<Var> inputs = std::exchange(node.inputs, {});
    std::vector<Shape> shapes;
    std::vector<DType> types;
    for (const Var& input : inputs) {
      shapes.push_back(input.shape());
      types.push_back(input.dtype());
      let_go(input);
    }
    let_go(v);
    const Backward gradient = std::exchange(node.backward, nullptr);
    Tensor dy = std::exchange(node.grad, {});
    std::vector<Tensor> grads = dy.defined() ? gradient(std::move(dy)) : std::vector<Tensor>(inputs.size());
    invariant(grads.size() == inputs.size(), "a gradient function returns one tensor for each input");
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].requires_grad()) continue;
      if (grads[i].defined()) {
        check(grads[i].shape() == shapes[i], "[backward] gradient of shape {} for an input of shape {}",
              to_string(grads[i].shape()), to_string(shapes[i]));
        if (grads[i].dtype() != types[i]) grads[i] = grads[i].to(types[i]);
        accumulate(inputs[i].node()->grad, std::move(grads[i]));
      }
      if (--missing[inputs[i].node().get()] == 0) complete(inputs[i]);
    }
  }
}

// Returns the leaves, except `except`, from which y was computed and that require a gradient.
std::vector<Var> leaves_under(const Var& y, const Var& except) {
  std::vector<Var> found, stack{y};
  std::unordered_set<Var::Node*> seen{y.node().get(), except.node().get()};
  while (!stack.empty()) {
    const Var v = std::move(stack.back());
    stack.pop_back();
    if (v.node()->leaf && v.node() != except.node()) found.push_back(v);
    for (const Var& input : v.node()->inputs)
      if (input.requires_grad() && seen.insert(input.node().get()).second) stack.push_back(input);
  }
  return found;
}

}  // namespace

void backward(const Var& loss, const std::function<void(const Var&)>& leaf_ready) {
  check(loss.value().numel() == 1, "[backward] the loss must be one element, its shape is {}", to_string(loss.shape()));
  check(loss.requires_grad(), "[backward] nothing that the loss depends on requires a gradient");
  const TracePart part("backward");
  sweep(loss, Tensor::full(loss.shape(), 1.0, loss.dtype(), loss.value().device()), leaf_ready);
}

// Records the first run like any other, to find the leaves that f reads, then drops the record.
Var recompute(std::function<Var(const Var&)> f, const Var& x) {
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
  return record(std::move(value), std::move(inputs),
                [f = std::move(f), leaves, input = x.value(), need_x = x.requires_grad(),
                 precision = product_precision()](Tensor dy) {
                  const PrecisionScope same(precision);
                  const Var again(input, need_x);
                  std::vector<Tensor> outer;  // contributions that the outer sweep has gathered so far
                  for (const Var& leaf : leaves) outer.push_back(std::exchange(leaf.node()->grad, {}));
                  const Recording on(true);
                  sweep(f(again), std::move(dy), {});
                  std::vector<Tensor> grads{std::exchange(again.node()->grad, {})};
                  for (size_t i = 0; i < leaves.size(); ++i)
                    grads.push_back(std::exchange(leaves[i].node()->grad, std::move(outer[i])));
                  return grads;
                });
}

NoGrad::NoGrad() : previous_(recording) { recording = false; }
NoGrad::~NoGrad() { recording = previous_; }

}  // namespace elinvar
