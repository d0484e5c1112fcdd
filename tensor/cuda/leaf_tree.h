#pragma once
// Leaves of columns and the tree over them (NUMERICS.md, rules 12 and 15), as launches. In the first, each thread makes
// leaves of its column and each block merges its own; a second merges the results of up to 1024 blocks, and one more
// follows for each further level. A Tree is a kernel argument with
//   Node                                          what a leaf becomes, and what two nodes merge to
//   static constexpr bool kLong                   whether a leaf is many rows, enough work for a thread
//   static constexpr int kBlocks                  how many blocks of leaves a multiprocessor should run at once
//   Node leaf(int64_t i, int64_t c) const         leaf i of column c
//   void operator()(Node& a, const Node& b) const joins the right neighbour b to a
//   void store(int64_t c, const Node& root) const
// A column may stand for several neighbouring ones, whose nodes are then one Node.
#include "tensor/cuda/columns.h"

namespace elinvar::HWY_NAMESPACE {

struct TreeLevel {
  int64_t leaves, cols;
  int64_t blocks, tiles;  // the grid: (blocks of leaves, tiles of columns)
  ColumnTile tile;
};

inline constexpr int kNodesOfThread = 4;   // adjacent short leaves or nodes, whose loads overlap
inline constexpr int kWideThreads = 1024;  // of a block that merges many nodes

template <class Tree, bool kLeaves>
inline constexpr int kLeavesOfThread = kLeaves&& Tree::kLong ? 1 : kNodesOfThread;
template <class Tree, bool kLeaves>
inline constexpr int kMostThreads = kLeaves&& Tree::kLong ? ColumnTile::kThreads : kWideThreads;

template <class Tree, bool kLeaves>
__global__ void __launch_bounds__((kMostThreads<Tree, kLeaves>), (kLeaves ? Tree::kBlocks : 1))
    tree_level(Tree tree, TreeLevel level, const typename Tree::Node* from, typename Tree::Node* to) {
  using Node = typename Tree::Node;
  constexpr int kEach = kLeavesOfThread<Tree, kLeaves>;
  const ColumnTile tile = level.tile;
  const int64_t block = int64_t{blockIdx.x} / level.tiles,
                c = int64_t{blockIdx.x} % level.tiles * tile.width + tile.column();
  const int64_t begin = block * tile.depth() * kEach, first = begin + tile.leaf() * kEach, n = level.leaves - first;
  Node nodes[kEach] = {};
  if (c < level.cols && n > 0) {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = first + (k < n ? k : 0);  // not a branch, so that all loads overlap
      if constexpr (kLeaves) nodes[k] = tree.leaf(i, c);
      else nodes[k] = from[i * level.cols + c];
    }
    adjacent_tree(nodes, n, tree);
  }
  const int64_t held = (level.leaves - begin + kEach - 1) / kEach;
  const Node root = block_tree(tile, static_cast<int>(held < tile.depth() ? held : tile.depth()), nodes[0], tree);
  if (tile.leaf() != 0 || c >= level.cols) return;
  if (level.blocks == 1) tree.store(c, root);
  else to[block * level.cols + c] = root;
}

// The level over `leaves` leaves or nodes. Few columns stand side by side where nodes are merged, so that blocks are
// many and one of them takes all nodes of its columns.
template <class Tree, bool kLeaves>
TreeLevel level_over(int64_t leaves, int64_t cols) {
  constexpr int64_t kEach = kLeavesOfThread<Tree, kLeaves>;
  constexpr int kNarrow = 4;
  const int64_t threads = (leaves + kEach - 1) / kEach;  // of a column
  const bool wide = threads > ColumnTile::kThreads / kNarrow;
  const ColumnTile tile = kLeaves && Tree::kLong
                              ? ColumnTile::of(cols, leaves)
                              : ColumnTile::of(cols, threads, wide ? kWideThreads : ColumnTile::kThreads, kNarrow);
  const int64_t block = tile.depth() * kEach;
  return {leaves, cols, (leaves + block - 1) / block, tile.tiles(cols), tile};
}

// For `cols` columns of `leaves` > 0 leaves.
template <class Tree>
void leaf_tree(Gpu& stream, const char* name, const Tree& tree, int64_t leaves, int64_t cols) {
  using Node = typename Tree::Node;
  TreeLevel level = level_over<Tree, true>(leaves, cols);
  std::shared_ptr<void> from, to;
  const auto run = [&](auto kernel) {
    if (level.blocks > 1) to = stream.allocate(static_cast<size_t>(level.blocks * cols) * sizeof(Node));
    launch(stream, name, level.tile.template grid<Node>(level.blocks * level.tiles), kernel, tree, level,
           static_cast<const Node*>(from.get()), static_cast<Node*>(to.get()));
    from = std::move(to);
  };
  run(tree_level<Tree, true>);
  while (level.blocks > 1) {
    level = level_over<Tree, false>(level.blocks, cols);
    run(tree_level<Tree, false>);
  }
}

}  // namespace elinvar::HWY_NAMESPACE
