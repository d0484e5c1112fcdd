#pragma once
// Products of other libraries, for comparison with the engine's: oneDNN's convolutions in its preferred layout, and
// both libraries' matrix products. Each owns its operands; `run` computes the product once.
#include <functional>
#include <string>
#include <vector>

#include "tensor/ops/conv2d.h"

namespace elinvar::peers {

struct Product {
  std::string name;
  std::function<void()> run;
};

enum class Direction { forward, input, filter };

// C (m, n) = A (m, k) x B (k, n), all row-major; a transposed operand is stored as (k, m) or (n, k).
struct Gemm {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
};
std::vector<Product> gemms(const Gemm& of);

// One direction of a convolution without groups or dilation. "oneDNN" may choose the layout of all operands; their
// reordering is not timed. "oneDNN nhwc" has images in the engine's layout, channels last.
std::vector<Product> convolutions(const ConvGeometry& g, Direction direction);

void set_peer_threads(int threads);

}  // namespace elinvar::peers
