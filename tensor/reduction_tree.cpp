#include "tensor/reduction_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {
namespace {

// Returns the number of leaves that a node would cover in an infinite tree: its extent in the perfect tree.
int nominal_size(const Subtree& node) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(node.end - node.begin)));
}

// A node's nominal size is that of its level or, if leaves are cut off, of the lowest level with the same leaves. So
// neighbours are siblings if the left one is full and aligned to its parent, and the right one is no larger.
bool siblings(const Subtree& left, const Subtree& right, int leaves) {
  const int size = left.end - left.begin;
  if (right.begin != left.end || nominal_size(left) != size || left.begin % (2 * size) != 0) return false;
  return right.end == std::min(left.begin + 2 * size, leaves);
}

Tensor sum(Tensor&& left, const Tensor& right, size_t index) {
  check(left.defined() == right.defined(), "[reduction tree] tensor {} is in some leaves alone", index);
  if (!left.defined()) return {};
  check(left.shape() == right.shape(), "[reduction tree] tensor {} has shapes {} and {}", index,
        to_string(left.shape()), to_string(right.shape()));
  // The parts of a worker whose group of GPUs ended within a step can be on two devices (elastic/PROTOCOL.md).
  if (left.device() != right.device()) return add_to(left.to(Device{}), right.to(Device{}));
  return add_to(std::move(left), right);
}

std::vector<Tensor> merged(std::vector<Tensor> left, std::vector<Tensor> right) {
  if (left.empty()) return right;
  if (right.empty()) return left;
  check(left.size() == right.size(), "[reduction tree] leaves have {} and {} tensors", left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    left[i] = sum(std::move(left[i]), right[i], i);
    right[i] = Tensor();
  }
  return left;
}

}  // namespace

bool is_node(int begin, int end, int leaves) {
  if (begin < 0 || begin >= end || end > leaves) return false;
  const int size = static_cast<int>(std::bit_ceil(static_cast<unsigned>(end - begin)));
  return begin % size == 0 && (end - begin == size || end == leaves);
}

TreeReducer::TreeReducer(int leaves) : leaves_(leaves) {
  check(leaves >= 1, "[reduction tree] at least one leaf expected, got {}", leaves);
}

// Puts the node in which [begin, end) ends on the stack, without values, and returns the values of the siblings to its
// left that it was merged with, from right to left. The caller adds the values of [begin, end) to each in turn.
std::vector<std::vector<Tensor>> TreeReducer::place(int begin, int end) {
  check(missing_ == 0, "[reduction tree] {} values of an open leaf are missing", missing_);
  check(is_node(begin, end, leaves_), "[reduction tree] [{}, {}) is no node of a tree of {} leaves", begin, end,
        leaves_);
  check(stack_.empty() || begin >= stack_.back().end, "[reduction tree] leaf {} came after leaf {}", begin,
        stack_.empty() ? 0 : stack_.back().end - 1);
  stack_.push_back({begin, end, {}});
  std::vector<std::vector<Tensor>> lefts;
  while (stack_.size() > 1 && siblings(stack_[stack_.size() - 2], stack_.back(), leaves_)) {
    stack_.pop_back();
    stack_.back().end = end;
    lefts.push_back(std::move(stack_.back().values));
  }
  return lefts;
}

void TreeReducer::add(Subtree next) {
  std::vector<Tensor> values = std::move(next.values);
  for (std::vector<Tensor>& left : place(next.begin, next.end)) values = merged(std::move(left), std::move(values));
  stack_.back().values = std::move(values);
}

void TreeReducer::open(int leaf, size_t values, size_t absent) {
  lefts_ = place(leaf, leaf + 1);
  std::erase_if(lefts_, [](const std::vector<Tensor>& left) { return left.empty(); });
  for (const std::vector<Tensor>& left : lefts_)
    check(left.size() == values, "[reduction tree] leaves have {} and {} tensors", left.size(), values);
  stack_.back().values.assign(values, {});
  missing_ = values - absent;
  if (missing_ == 0) lefts_.clear();
}

void TreeReducer::put(size_t index, Tensor value) {
  check(missing_ > 0 && index < stack_.back().values.size() && !stack_.back().values[index].defined(),
        "[reduction tree] tensor {} of an open leaf was not expected", index);
  for (std::vector<Tensor>& left : lefts_) {
    if (value.device() != Device{}) {
      used_.push_back(value);
      if (!left[index].unique() || !left[index].contiguous()) used_.push_back(left[index]);  // the sum is in new memory
    }
    value = sum(std::move(left[index]), value, index);
  }
  stack_.back().values[index] = std::move(value);
  if (--missing_ == 0) lefts_.clear();
}

void TreeReducer::move_to(Device device) {
  check(missing_ == 0, "[reduction tree] {} values of an open leaf are missing", missing_);
  for (Subtree& subtree : stack_)
    for (Tensor& value : subtree.values)
      if (value.defined()) value = value.to(device);
}

std::vector<Subtree> TreeReducer::take_subtrees() {
  check(missing_ == 0, "[reduction tree] {} values of an open leaf are missing", missing_);
  return std::exchange(stack_, {});
}

std::vector<Tensor> TreeReducer::take_root() {
  check(complete(), "[reduction tree] leaves are missing");
  std::vector<Tensor> root = std::move(stack_[0].values);
  stack_.clear();
  return root;
}

Tensor tree_sum(std::vector<Tensor> leaves) {
  TreeReducer reducer(static_cast<int>(leaves.size()));
  for (size_t i = 0; i < leaves.size(); ++i) {
    std::vector<Tensor> leaf(1);
    leaf[0] = std::move(leaves[i]);
    reducer.add(static_cast<int>(i), std::move(leaf));
  }
  return std::move(reducer.take_root()[0]);
}

}  // namespace elinvar
