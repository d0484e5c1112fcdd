#pragma once
// One launch for many tensors: their blocks are consecutive in the grid, and each block finds its own tensor.
//
//   __global__ void sgd_blocks(Many<SgdArgs> all) {
//     const auto [a, block] = all.find();   // the block'th of a's blocks
//   }
//   launch_many(stream, "sgd", all, [](const SgdArgs& a) { return blocks of a; }, HWY_NAMESPACE::sgd_blocks);
#include <span>

#include "tensor/cuda/kernel.h"

namespace elinvar {

template <class Args>
struct Many {
  static constexpr int kMost = (4096 - 16) / (8 + static_cast<int>(sizeof(Args)));  // that fit in a kernel's arguments
  struct Place {
    const Args& args;
    int64_t block;
  };
  int count = 0;
  int64_t first[kMost + 1] = {0};  // blocks of each tensor, then their number
  Args args[kMost];

  __device__ Place find() const {
    const int64_t block = int64_t{blockIdx.x};
    int i = 0;
    for (int end = count; end - i > 1;) {
      const int middle = (i + end) / 2;
      (first[middle] <= block ? i : end) = middle;
    }
    return {args[i], block - first[i]};
  }
};

template <class Args, class Blocks>
void launch_many(Gpu& stream, const char* name, std::span<const Args> all, Blocks blocks_of,
                 void (*kernel)(Many<Args>)) {
  static_assert(sizeof(Many<Args>) <= 4096);
  while (!all.empty()) {
    Many<Args> some;
    while (some.count < Many<Args>::kMost && static_cast<size_t>(some.count) < all.size()) {
      const Args& a = all[static_cast<size_t>(some.count)];
      some.args[some.count] = a;
      some.first[some.count + 1] = some.first[some.count] + blocks_of(a);
      ++some.count;
    }
    launch(stream, name, {.blocks = some.first[some.count]}, kernel, some);
    all = all.subspan(static_cast<size_t>(some.count));
  }
}

}  // namespace elinvar
