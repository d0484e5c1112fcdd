#pragma once
// Products by other libraries, to be measured beside the engine's: oneDNN's convolutions in the layout that it likes
// best, and both libraries' matrix products. Each owns its operands; `run` computes once.
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

// C (m, n) = A (m, k) x B (k, n), all row-major, or of the transpose of a matrix that lies there (k, m), (n, k).
struct Gemm {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
};
std::vector<Product> gemms(const Gemm& of);

// One direction of a convolution without groups or dilation. "oneDNN" may choose the layout of all operands, and
// reorders of them are not timed; "oneDNN nhwc" has its images where the engine has them, channels last.
std::vector<Product> convolutions(const ConvGeometry& g, Direction direction);

void set_peer_threads(int threads);

}  // namespace elinvar::peers
