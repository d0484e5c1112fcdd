#pragma once
// The fixed binary tree over virtual ranks that combines leaf gradients (NUMERICS.md, rule 18). A range of n > 1
// leaves is split at the largest power of two below n; a node is the element-wise sum left + right, rounded once;
// an absent leaf (a virtual rank without samples in a short batch) passes its sibling through unchanged. The tree
// depends on the number of virtual ranks alone, so who computes which part of it is free.
//
// That tree has a level by level form, which is what is computed here: node `index` at `level` covers the leaves
// [index << level, (index + 1) << level), cut off at n, and its children are nodes 2 index and 2 index + 1 of the
// level below. Where the right one would begin past n, the node *is* its left child.
//
//   n = 6         level 3         ( 0 1 2 3 4 5 )
//                 level 2      ( 0 1 2 3 )  ( 4 5 )
//                 level 1     ( 0 1 )( 2 3 )( 4 5 )
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

// The leaves [begin, end) reduced to one, or none of them present: then `values` is empty.
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

  // The next leaf or subtree; it must begin at or after the end of the one before, and a subtree must be a node
  // of the tree. Values are added in place where this reducer is the only owner of their storage and no
  // element is repeated, else into fresh tensors: whoever keeps a handle sees no change. What lies on two devices is
  // added on the CPU.
  void add(int leaf, std::vector<Tensor> values) { add(Subtree{leaf, leaf + 1, std::move(values)}); }
  void add(Subtree subtree);

  // A leaf whose values become ready one by one, in any order: it takes its place in the tree at once, and each value
  // is reduced as it comes. Until all `values` (at least 1) of them are there nothing else may be added; of what
  // subtrees() shows, the values of the last one that have come are final.
  void open(int leaf, size_t values);
  void put(size_t index, Tensor value);
  // Whether the next put() keeps the value itself, as there is nothing to its left yet that it is added to.
  bool keeps() const { return lefts_.empty(); }
  // Lets go of what put() has used, which of a GPU's tensors is kept until then: a side queue (tensor/side_queue.h) may
  // still be adding it.
  void close() { used_.clear(); }

  void move_to(Device device);  // the values reduced so far; none are missing of an open leaf

  // What has been reduced so far: the maximal subtrees, ascending. A whole tree has one, its root.
  const std::vector<Subtree>& subtrees() const { return stack_; }
  bool complete() const {
    return missing_ == 0 && stack_.size() == 1 && stack_[0].begin == 0 && stack_[0].end == leaves_;
  }
  // The root's values (empty if every leaf was absent); the reducer must be complete and starts anew.
  std::vector<Tensor> take_root();

 private:
  std::vector<std::vector<Tensor>> place(int begin, int end);

  int leaves_;
  std::vector<Subtree> stack_;
  std::vector<std::vector<Tensor>> lefts_;  // what the values of an open leaf are added to, one after another
  size_t missing_ = 0;                      // of an open leaf's values
  std::vector<Tensor> used_;                // and what was added, though it is not the sum
};

// Whether [begin, end) is a node of the tree over `leaves` leaves.
bool is_node(int begin, int end, int leaves);

}  // namespace elinvar
