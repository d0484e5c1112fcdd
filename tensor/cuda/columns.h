#pragma once
// The order of sums along a column (NUMERICS.md, rule 12) on a GPU: chains of kColumnLeaf rows from +0, then the
// adjacent pairwise tree over the chains, an odd one passing up. The tree has several forms, for nodes of any kind:
// PairTree and adjacent_tree for the nodes of one thread, block_tree for those of a block's threads, and launches that
// merge the results of blocks (leaf_tree.h). An aligned run of 2^k leaves is a whole subtree, so no split shows in a
// result.
//
//   const float sum = column_sum_of_thread<float>(n, [&](float acc, int64_t k) { return acc + x[k * cols + c]; });
#include "tensor/cuda/kernel.h"
#include "tensor/numerics.h"

namespace elinvar::HWY_NAMESPACE {

// Merges nodes in order, like carries in a binary counter: carry_[k] is the root of 2^k neighbours if bit k of their
// number is set. merge(a, b) makes a the parent of a and its right neighbour b. At most 2^kLevels - 1 nodes.
template <class Node, class Merge, int kLevels = 40>
class PairTree {
 public:
  __device__ explicit PairTree(Merge merge) : merge_(merge) {}

  __device__ void add(Node node) {
    int level = 0;
    for (; nodes_ >> level & 1; ++level) {
      Node left = carry_[level];
      merge_(left, node);
      node = left;
    }
    carry_[level] = node;
    ++nodes_;
  }

  // Requires at least one node.
  __device__ Node root() const {
    int level = 0;
    while ((nodes_ >> level & 1) == 0) ++level;
    Node all = carry_[level];
    for (++level; nodes_ >> level != 0; ++level) {
      if ((nodes_ >> level & 1) == 0) continue;
      Node left = carry_[level];
      merge_(left, all);
      all = left;
    }
    return all;
  }

 private:
  Merge merge_;
  int64_t nodes_ = 0;
  Node carry_[kLevels];
};

// The same for the first n of kMost nodes, n > 0, which stay in registers: makes nodes[0] the root.
template <int kMost, class Node, class Merge>
__device__ void adjacent_tree(Node (&nodes)[kMost], int64_t n, const Merge& merge) {
#pragma unroll
  for (int s = 1; s < kMost; s *= 2) {
#pragma unroll
    for (int k = 0; k + s < kMost; k += 2 * s)
      if (k + s < n) merge(nodes[k], nodes[k + s]);
  }
}

struct AddNodes {
  template <class T>
  __device__ void operator()(T& a, T b) const {
    a = a + b;
  }
};

// How a block's threads share its columns: `width` neighbouring threads read one row, and threads / width of them take
// the leaves of one column. All are powers of two.
struct ColumnTile {
  static constexpr int kThreads = 256;
  int width;
  int threads = kThreads;

  // For columns of `leaves` leaves: no more threads per column than leaves, and `narrow` threads side by side, by
  // default those of a warp, if there are enough columns and leaves.
  static ColumnTile of(int64_t cols, int64_t leaves, int threads = kThreads, int narrow = 32) {
    int least = 1, deep = 1;
    while (least < narrow && least < cols) least *= 2;
    while (deep < threads / least && deep < leaves) deep *= 2;
    return {threads / deep, threads};
  }

  int64_t tiles(int64_t cols) const { return (cols + width - 1) / width; }
  template <class Node>
  Grid grid(int64_t blocks) const {
    return {.blocks = blocks, .threads = threads, .shared = static_cast<size_t>(threads) * sizeof(Node)};
  }

  __host__ __device__ int depth() const { return threads / width; }
  __device__ int column() const { return static_cast<int>(threadIdx.x) & (width - 1); }
  __device__ int leaf() const { return static_cast<int>(threadIdx.x) / width; }
};

// Returns the root of the first `count` threads' nodes of each column to the threads of leaf 0. All threads of the
// block call it; its dynamic shared memory must hold a Node for each, and may not have been used before.
template <class Node, class Merge>
__device__ Node block_tree(const ColumnTile& tile, int count, const Node& mine, Merge merge) {
  Node* nodes = dynamic_shared<Node>();
  const int at = static_cast<int>(threadIdx.x), leaf = tile.leaf();
  nodes[at] = mine;
  __syncthreads();
  for (int s = 1; s < count; s *= 2) {
    if (leaf % (2 * s) == 0 && leaf + s < count) {
      Node left = nodes[at];
      merge(left, nodes[at + s * tile.width]);
      nodes[at] = left;
    }
    __syncthreads();
  }
  return nodes[at];
}

// Returns a leaf: the chain of n rows' terms. step(acc, k) returns acc with the term of row k added.
template <class T, class Step>
__device__ T column_chain(int64_t n, Step step) {
  T acc{0};
#pragma unroll 8
  for (int64_t k = 0; k < n; ++k) acc = step(acc, k);
  return acc;
}

// Returns the sum of n rows' terms, by one thread.
template <class T, class Step>
__device__ T column_sum_of_thread(int64_t n, Step step) {
  if (n <= kColumnLeaf) return column_chain<T>(n, step);
  PairTree<T, AddNodes> tree{AddNodes()};
  for (int64_t begin = 0; begin < n; begin += kColumnLeaf)
    tree.add(column_chain<T>(begin + kColumnLeaf < n ? kColumnLeaf : n - begin,
                             [&](T acc, int64_t k) { return step(acc, begin + k); }));
  return T{0} + tree.root();
}

}  // namespace elinvar::HWY_NAMESPACE
