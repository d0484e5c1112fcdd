#include "tensor/ops/global_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/global_norm.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <vector>

#include "tensor/op_check.h"
#include "tensor/square_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

void square_sums_segments(const SquareSumsArgs& a, int64_t begin, int64_t end) {
  visit_float(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t s = begin; s < end; ++s)
      a.partial.as<double>()[s] =
          segment_square_sum(a.x.as<T>() + s * kRowSegment, std::min(kRowSegment, a.n - s * kRowSegment));
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(square_sums_segments);

void square_sums(CpuStream& stream, const SquareSumsArgs& a) {
  stream.parallel_for((a.n + kRowSegment - 1) / kRowSegment, 8, [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(square_sums_segments)(a, b, e);
  });
}

double square_sum(std::span<const Tensor> tensors) {
  double sum = 0.0;
  std::vector<double> partial;
  for (const Tensor& tensor : tensors) {
    check_float("global_norm", tensor);
    const Tensor x = tensor.to_contiguous();
    partial.resize(static_cast<size_t>((x.numel() + kRowSegment - 1) / kRowSegment));
    on(x.device(), [&](auto& stream) {
      square_sums(stream, SquareSumsArgs{in(x), Out{partial.data(), DType::f64}, x.numel()});
    });
    for (double p : partial) sum += p;
  }
  return sum;
}

double global_norm(std::span<const Tensor> tensors) { return std::sqrt(square_sum(tensors)); }

}  // namespace elinvar
#endif
