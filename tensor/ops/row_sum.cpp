#include "tensor/ops/row_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/row_sum.cpp"
#include <hwy/foreach_target.h>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/trace.h"
#include "tensor/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T>
void whole_rows(const T* x, const T* factor, T* sum, int64_t cols, T divisor, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const auto load_x = [&](int64_t i, int64_t count) { return Vec<T>::load(x + r * cols + i, count); };
    const auto load_factor = [&](int64_t i, int64_t count) { return Vec<T>::load(factor + r * cols + i, count); };
    sum[r] = (factor ? row_dot<T>(cols, load_x, load_factor) : row_sum<T>(cols, load_x)) / divisor;
  }
}

void row_sum_rows(const RowSumArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    whole_rows(a.x.as<T>(), a.factor.as<T>(), a.sum.as<T>(), a.cols, static_cast<T>(a.divisor), begin, end);
  });
}

// Segments [begin, end) counted over all rows.
void row_sum_segments(const RowSumArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t segments = segments_of(a.cols);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % segments * kRowSegment, n = std::min(kRowSegment, a.cols - first);
      const int64_t at = i / segments * a.cols + first;
      whole_rows(a.x.as<T>() + at, a.factor.data ? a.factor.as<T>() + at : nullptr, a.partial.as<T>() + i, n, T{1}, 0,
                 1);
    }
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(row_sum_rows);
HWY_EXPORT(row_sum_segments);

namespace {
constexpr int64_t kGrain = 32768;  // least elements per thread
}

void row_sum(CpuStream& stream, const RowSumArgs& a) {
  if (a.cols <= kRowSegment) {
    stream.parallel_for(a.rows, kGrain / (a.cols + 1) + 1, [&](int64_t b, int64_t e) {
      ELINVAR_KERNEL(row_sum_rows, a.x.dtype)(a, b, e);
    });
    return;
  }
  const int64_t segments = segments_of(a.cols);
  stream.parallel_for(a.rows * segments, kGrain / kRowSegment, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(row_sum_segments, a.x.dtype)(a, b, e);
  });
  const RowSumArgs rest{{a.partial.data, a.partial.dtype}, {}, a.sum, {}, a.rows, segments, a.divisor};
  stream.parallel_for(a.rows, kGrain / segments + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(row_sum_rows, rest.x.dtype)(rest, b, e);
  });
}

namespace {

Tensor launch(const Tensor& x, const Tensor* factor, int64_t rows, int64_t cols, double divisor) {
  Tensor sum = Tensor::empty({rows}, x.dtype(), x.device());
  Tensor partial = Tensor::empty({cols > kRowSegment ? rows * segments_of(cols) : 0}, x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    row_sum(stream, RowSumArgs{in(x), factor ? in(*factor) : In{}, out(sum), out(partial), rows, cols, divisor});
  });
  return sum;
}

Tensor row_sum_of(const Tensor& x, double divisor) {
  check_float("row_sum", x);
  check(x.ndim() == 2, "[row_sum] two dimensions expected, shape is {}", to_string(x.shape()));
  return launch(x.to_contiguous(), nullptr, x.dim(0), x.dim(1), divisor);
}

Tensor dot_of(const Tensor& a, const Tensor& b) {
  check_float("dot", a);
  check_same_dtype("dot", a, b);
  check_same_shape("dot", a, b);
  const Tensor x = a.to_contiguous(), factor = b.to_contiguous();
  return launch(x, &factor, 1, x.numel(), 1.0).reshape({});
}

const Op kRowSum("row_sum(x, divisor) -> sum", row_sum_of);
const Op kDot("dot(a, b) -> sum", dot_of);

}  // namespace

Tensor row_sum(const Tensor& x, double divisor) { return kRowSum(x, divisor); }
Tensor dot(const Tensor& a, const Tensor& b) { return kDot(a, b); }

}  // namespace elinvar
#endif
