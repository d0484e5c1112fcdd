#include "tensor/ops/column_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/column_sum.cpp"
#include <hwy/foreach_target.h>

#include "tensor/columns-inl.h"
#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/trace.h"

namespace elinvar {
#ifndef ELINVAR_COLUMN_TASK
#define ELINVAR_COLUMN_TASK
constexpr int64_t kColumnTask = 256;  // columns per task

struct ColumnTasks {
  ColumnSumArgs a;
  int64_t chain;           // rows per chain
  int64_t range;           // rows per task
  int64_t ranges, blocks;  // tasks are (outer, range, block of columns)
};
#endif
}  // namespace elinvar

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

void column_sum_tasks(const ColumnTasks& t, int64_t begin, int64_t end) {
  visit_element(t.a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const int64_t cols = t.a.cols;
    const V divisor = V::set(static_cast<T>(t.a.divisor));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i % t.blocks, range = i / t.blocks % t.ranges, outer = i / (t.blocks * t.ranges);
      const int64_t first = range * t.range, n = std::min(t.range, t.a.rows - first);
      const T* x = t.a.x.as<T>() + (outer * t.a.rows + first) * cols;
      T* y = t.a.sum.as<T>() + (outer * t.ranges + range) * cols;
      column_sums<T>(
          n, t.chain, block * kColumnTask, std::min(cols, (block + 1) * kColumnTask),
          [&](V acc, int64_t k, int64_t c, int64_t count) { return acc + V::load(x + k * cols + c, count); },
          [&](V sum, int64_t c, int64_t count) { (sum / divisor).store(y + c, count); });
    }
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(column_sum_tasks);

namespace {

void launch(CpuStream& stream, const ColumnSumArgs& a, int64_t chain, int64_t range) {
  if (a.rows == 0) {
    visit_float(a.sum.dtype, [&](auto zero) { std::fill_n(a.sum.as<decltype(zero)>(), a.outer * a.cols, zero); });
    return;
  }
  const ColumnTasks t{a, chain, range, (a.rows + range - 1) / range, (a.cols + kColumnTask - 1) / kColumnTask};
  const int64_t elements = std::min(range, a.rows) * std::min(kColumnTask, a.cols);
  stream.parallel_for(a.outer * t.ranges * t.blocks, 32768 / (elements + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(column_sum_tasks, t.a.x.dtype)(t, b, e);
  });
}

}  // namespace

void column_sum(CpuStream& stream, const ColumnSumArgs& a) {
  if (a.rows <= kColumnRange) {
    launch(stream, a, kColumnLeaf, kColumnRange);
    return;
  }
  const int64_t ranges = (a.rows + kColumnRange - 1) / kColumnRange;
  launch(stream, {a.x, a.partial, {}, a.outer, a.rows, a.cols, 1.0}, kColumnLeaf, kColumnRange);
  launch(stream, {{a.partial.data, a.partial.dtype}, a.sum, {}, a.outer, ranges, a.cols, a.divisor}, 1, ranges);
}

void column_tree(CpuStream& stream, const ColumnTreeArgs& a) {
  launch(stream, {a.partial, a.sum, {}, 1, a.leaves, a.cols, 1.0}, 1, a.leaves);
}

namespace {

Tensor column_sum_of(const Tensor& input, double divisor) {
  check_activation("column_sum", input);
  check(input.ndim() == 3, "[column_sum] three dimensions expected, shape is {}", to_string(input.shape()));
  const Tensor x = input.to_contiguous();
  const int64_t outer = x.dim(0), rows = x.dim(1), cols = x.dim(2);
  Tensor sum = Tensor::empty({outer, cols}, computed_in(x.dtype()), x.device());
  const int64_t ranges = (rows + kColumnRange - 1) / kColumnRange;
  Tensor partial = Tensor::empty({ranges > 1 ? outer * ranges : 0, cols}, sum.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    column_sum(stream, ColumnSumArgs{in(x), out(sum), out(partial), outer, rows, cols, divisor});
  });
  return sum;
}

const Op kColumnSum("column_sum(x, divisor) -> sum", column_sum_of);

}  // namespace

Tensor column_sum(const Tensor& x, double divisor) { return kColumnSum(x, divisor); }

}  // namespace elinvar
#endif
