#include "comm/reduction_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tensor/check.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {
namespace {

// The number of leaves that a node would cover in a tree without end: its extent in the perfect tree.
int nominal_size(const Subtree& node) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(node.end - node.begin)));
}

// A node's nominal size is that of its level or, if leaves are cut off, of the lowest level that gives the same
// leaves. So neighbours are siblings if the left is full, aligned to its parent, and the right no larger.
bool siblings(const Subtree& left, const Subtree& right, int leaves) {
  const int size = left.end - left.begin;
  if (right.begin != left.end || nominal_size(left) != size || left.begin % (2 * size) != 0) return false;
  return right.end == std::min(left.begin + 2 * size, leaves);
}

void merge(std::vector<Tensor>& left, std::vector<Tensor>&& right) {
  if (left.empty()) {
    left = std::move(right);
    return;
  }
  if (right.empty()) return;
  check(left.size() == right.size(), "[reduction tree] leaves have {} and {} tensors", left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    check(left[i].shape() == right[i].shape(), "[reduction tree] tensor {} has shapes {} and {}", i,
          to_string(left[i].shape()), to_string(right[i].shape()));
    left[i] = add_to(std::move(left[i]), right[i]);
    right[i] = Tensor();
  }
}

}  // namespace

bool is_node(int begin, int end, int leaves) {
  if (begin < 0 || begin >= end || end > leaves) return false;
  const int size = static_cast<int>(std::bit_ceil(static_cast<unsigned>(end - begin)));
  return begin % size == 0 && (end - begin == size || end == leaves);
}

TreeFold::TreeFold(int leaves) : leaves_(leaves) {
  check(leaves >= 1, "[reduction tree] at least one leaf expected, got {}", leaves);
}

void TreeFold::add(Subtree next) {
  check(is_node(next.begin, next.end, leaves_), "[reduction tree] [{}, {}) is no node of a tree of {} leaves",
        next.begin, next.end, leaves_);
  check(stack_.empty() || next.begin >= stack_.back().end, "[reduction tree] leaf {} came after leaf {}", next.begin,
        stack_.empty() ? 0 : stack_.back().end - 1);
  stack_.push_back(std::move(next));
  while (stack_.size() > 1 && siblings(stack_[stack_.size() - 2], stack_.back(), leaves_)) {
    Subtree right = std::move(stack_.back());
    stack_.pop_back();
    stack_.back().end = right.end;
    merge(stack_.back().values, std::move(right.values));
  }
}

std::vector<Tensor> TreeFold::take_root() {
  check(complete(), "[reduction tree] leaves are missing");
  std::vector<Tensor> root = std::move(stack_[0].values);
  stack_.clear();
  return root;
}

}  // namespace elinvar
