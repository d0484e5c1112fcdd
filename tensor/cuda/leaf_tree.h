#pragma once
// Leaves of columns and the tree over them (NUMERICS.md, rules 12 and 15), as launches. In the first, each thread makes
// leaves of its column and each block merges its own; one more launch follows for each further level of blocks. A Tree
// is a kernel argument with
//   Node                                          what a leaf becomes, and what two nodes merge to
//   static constexpr int kLeavesOfThread          a power of two below 256: 1 if a leaf is many rows
//   Node leaf(int64_t i, int64_t c) const         leaf i of column c
//   void operator()(Node& a, const Node& b) const joins the right neighbour b to a
//   void store(int64_t c, const Node& root) const
#include "tensor/cuda/columns.h"

namespace elinvar::HWY_NAMESPACE {

struct TreeLevel {
  int64_t leaves, cols;
  int64_t each;           // leaves per thread
  int64_t blocks, tiles;  // the grid: (blocks of leaves, tiles of columns)
  ColumnTile tile;
};

template <class Tree, bool kLeaves>
__global__ void tree_level(Tree tree, TreeLevel level, const typename Tree::Node* from, typename Tree::Node* to) {
  using Node = typename Tree::Node;
  const ColumnTile tile = level.tile;
  const int64_t block = int64_t{blockIdx.x} / level.tiles,
                c = int64_t{blockIdx.x} % level.tiles * tile.width + tile.column();
  const int64_t begin = block * tile.depth() * level.each, first = begin + tile.leaf() * level.each;
  const int64_t rest = level.leaves - first, n = rest < level.each ? rest : level.each;
  const auto leaf = [&](int64_t i) {
    if constexpr (kLeaves) return tree.leaf(i, c);
    else return from[i * level.cols + c];
  };
  Node mine{};
  if (c < level.cols && n > 0) {
    if constexpr (kLeaves && Tree::kLeavesOfThread == 1) {
      mine = leaf(first);
    } else {
      PairTree<Node, Tree, 8> some(tree);
      for (int64_t i = 0; i < n; ++i) some.add(leaf(first + i));
      mine = some.root();
    }
  }
  const int64_t held = (level.leaves - begin + level.each - 1) / level.each;
  const Node root = block_tree(tile, static_cast<int>(held < tile.depth() ? held : tile.depth()), mine, tree);
  if (tile.leaf() != 0 || c >= level.cols) return;
  if (level.blocks == 1) tree.store(c, root);
  else to[block * level.cols + c] = root;
}

// For `cols` columns of `leaves` > 0 leaves.
template <class Tree>
void leaf_tree(Gpu& stream, const char* name, const Tree& tree, int64_t leaves, int64_t cols) {
  using Node = typename Tree::Node;
  constexpr int64_t kNodesOfThread = 16;
  const auto level_of = [&](int64_t n, int64_t each) {
    const ColumnTile tile = ColumnTile::of(cols, (n + each - 1) / each);
    const int64_t block = tile.depth() * each;
    return TreeLevel{n, cols, each, (n + block - 1) / block, tile.tiles(cols), tile};
  };
  TreeLevel level = level_of(leaves, Tree::kLeavesOfThread);
  std::shared_ptr<void> from, to;
  const auto run = [&](auto kernel) {
    if (level.blocks > 1) to = stream.allocate(static_cast<size_t>(level.blocks * cols) * sizeof(Node));
    launch(stream, name, level.tile.template grid<Node>(level.blocks * level.tiles), kernel, tree, level,
           static_cast<const Node*>(from.get()), static_cast<Node*>(to.get()));
    from = std::move(to);
  };
  run(tree_level<Tree, true>);
  while (level.blocks > 1) {
    level = level_of(level.blocks, kNodesOfThread);
    run(tree_level<Tree, false>);
  }
}

}  // namespace elinvar::HWY_NAMESPACE
