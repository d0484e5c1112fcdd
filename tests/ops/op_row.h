#pragma once
// One row per op, from which all its tests follow. A row registers, under "<name>.":
//   oracle      the float32 result agrees with `oracle`, written in float64 for clarity, to `tolerance` relative
//               to the largest magnitude of the result; the float64 result agrees to 1e-10. On the `large` inputs
//               float32 agrees to `large_tolerance`
//   gradcheck   in float64 every gradient agrees with central differences; every float32 gradient agrees with the
//               float64 one to `large_tolerance`, on the large inputs too
//   bits        values and gradients have the same bits with 1, 2 and 3 threads, on every instruction set that this
//               machine has, and from run to run; also on a second, larger set of inputs if `large` is given
//   layout      inputs that are transposed views give the same bits as contiguous ones, int32 indices the same as
//               int64
//   replay      each op that is called, repeated alone from what a recorder receives about it, gives the same bits
//   emulated    the CPU runs the kernels for GPUs (tests/emulation/) and gets the same bits, also on large and
//               adversarial inputs and on zeros of either sign
//   cuda        a GPU gives the same bits, if the build has a toolkit; skipped if the machine has no GPU
//   zero_fill   `zero_filled`, a route to the same result with additional terms that are zero (NUMERICS.md, rule 7),
//               gives the same bits on adversarial inputs: subnormals, signed zeros, huge and tiny magnitudes
//   errors      each of `errors` throws UsageError with a message that contains the given text
// `op_tests --gtest_filter='softmax*'` runs the rows whose names begin with softmax.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/var.h"

namespace elinvar::test {

struct Input {
  Shape shape;
  // distinct: no two values are close (for max)
  enum class Kind { normal, positive, distinct, index, mask } kind = Kind::normal;
  int64_t limit = 0;           // index: values in [0, limit), int64
  bool differentiable = true;  // floating inputs only
};

using Inputs = std::vector<Input>;
using Vars = std::vector<Var>;
using Tensors = std::vector<Tensor>;

struct OpRow {
  std::string name;
  Inputs inputs;
  std::function<Var(const Vars&)> op;            // index and mask inputs arrive as constants
  std::function<Tensor(const Tensors&)> oracle;  // takes and returns contiguous float64
  Inputs large = {};                             // sizes that fill several tiles, chunks and threads
  std::function<Var(const Vars&)> zero_filled = {};
  std::vector<std::pair<std::function<void()>, std::string>> errors = {};
  double tolerance = 2e-6;        // about thirty roundings of 2^-24, because errors of long sums grow slowly
  bool differentiable = true;     // false: the op, for example a comparison, has no gradient
  double large_tolerance = 1e-5;  // sums over thousands of terms
};

// Registers the rows' tests with GoogleTest; define one per file at namespace scope.
class OpRows {
 public:
  explicit OpRows(std::vector<OpRow> rows);
};

}  // namespace elinvar::test
