// A train or a repro in which column sums are added from the last row to the first, for tests that must find the fault.
#include "tensor/ops/column_sum.h"
#include "tensor/trace.h"

int tool_main(int argc, char** argv);  // the tool's own

namespace elinvar {
namespace {

// x (outer, rows, cols) float32 on the CPU -> (outer, cols)
Tensor from_the_last_row(const Tensor& given, double divisor) {
  const Tensor x = given.to_contiguous();
  const int64_t outer = x.dim(0), rows = x.dim(1), cols = x.dim(2);
  Tensor sum = Tensor::zeros({outer, cols});
  const float* from = x.data<float>();
  float* to = sum.data<float>();
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t r = rows - 1; r >= 0; --r)
      for (int64_t c = 0; c < cols; ++c) to[o * cols + c] += from[(o * rows + r) * cols + c];
  for (int64_t i = 0; i < outer * cols; ++i) to[i] /= static_cast<float>(divisor);
  return sum;
}

}  // namespace
}  // namespace elinvar

int main(int argc, char** argv) {
  using ColumnSum = elinvar::Op<elinvar::Tensor(const elinvar::Tensor&, double)>;
  static_cast<const ColumnSum*>(elinvar::find_op("column_sum"))->replace(elinvar::from_the_last_row);
  return tool_main(argc, argv);
}
