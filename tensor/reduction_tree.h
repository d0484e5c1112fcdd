#pragma once
// The fixed binary tree that adds up rank gradients over virtual ranks (NUMERICS.md, rule 18) and values over virtual
// shards (rule 24). A range of n > 1 leaves is split at the largest power of two below n; a node is the element-wise
// sum left + right, rounded once; an absent leaf (a virtual rank without samples in a short batch) passes its sibling
// through unchanged. The tree depends only on the number of leaves, so any worker may compute any part of it.
//
// The tree has a level by level form, which is computed here: node `index` at `level` covers the leaves [index <<
// level, (index + 1) << level), cut off at n, and its children are nodes 2 index and 2 index + 1 of the level below. If
// the right child would begin past n, the node *is* its left child.
//
//   n = 6         level 3         ( 0 1 2 3 4 5 )
//                 level 2      ( 0 1 2 3 )  ( 4 5 )
//                 level 1     ( 0 1 )( 2 3 )( 4 5 )
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

// The leaves [begin, end) reduced to one; `values` is empty if none of them is present.
struct Subtree {
  int begin = 0, end = 0;
  std::vector<Tensor> values;
};

// Reduces leaves, or subtrees that others have reduced, as they come in ascending order. It works like a binary
// counter with carries, so that it never holds more than log2(n) + 1 sets of values for an interval that begins
// at 0, and twice as many for any other. Not thread-safe; additions use the CPU stream's threads.
class TreeReducer {
 public:
  explicit TreeReducer(int leaves);

  // Adds the next leaf or subtree. It must begin at or after the end of the previous one, and a subtree must be a node
  // of the tree. Values are added in place if this reducer is the only owner of their storage and no element is
  // repeated, otherwise into new tensors, so that other handles see no change. Values on different devices are added on
  // the CPU. A value that is undefined must be so in all leaves.
  void add(int leaf, std::vector<Tensor> values) { add(Subtree{leaf, leaf + 1, std::move(values)}); }
  void add(Subtree subtree);

  // open() adds a leaf whose values become ready one by one, in any order; put() reduces each of them at once. Until
  // all `values` (at least 1), less those that are `absent`, have been put, nothing else may be added, and of the last
  // subtree in subtrees() only the values that have been put are final.
  void open(int leaf, size_t values, size_t absent = 0);
  void put(size_t index, Tensor value);
  // Whether the next put() keeps the value itself, because there is nothing to its left yet to which it is added.
  bool keeps() const { return lefts_.empty(); }
  // Releases GPU tensors that put() has used. They are kept until then, because a side queue (tensor/side_queue.h) may
  // still be adding them.
  void close() { used_.clear(); }

  void move_to(Device device);  // moves the values reduced so far; an open leaf must be complete

  // Returns the maximal subtrees reduced so far, ascending. A complete tree has one, its root.
  const std::vector<Subtree>& subtrees() const { return stack_; }
  bool complete() const {
    return missing_ == 0 && stack_.size() == 1 && stack_[0].begin == 0 && stack_[0].end == leaves_;
  }
  // Returns these subtrees and resets the reducer; an open leaf must be complete.
  std::vector<Subtree> take_subtrees();
  // Returns the root's values (empty if every leaf was absent) and resets the reducer, which must be complete.
  std::vector<Tensor> take_root();

 private:
  std::vector<std::vector<Tensor>> place(int begin, int end);

  int leaves_;
  std::vector<Subtree> stack_;
  std::vector<std::vector<Tensor>> lefts_;  // values to which those of an open leaf are added, in order
  size_t missing_ = 0;                      // of an open leaf's values
  std::vector<Tensor> used_;                // tensors that were added into others
};

// Returns the root of the tree over these leaves, all present; a single leaf is returned as it is. Adds in place where
// TreeReducer does.
Tensor tree_sum(std::vector<Tensor> leaves);

// Whether [begin, end) is a node of the tree over `leaves` leaves.
bool is_node(int begin, int end, int leaves);

}  // namespace elinvar
