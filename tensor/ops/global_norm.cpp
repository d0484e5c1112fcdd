#include "tensor/ops/global_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/global_norm.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <vector>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/simd-inl.h"
#include "tensor/square_sum-inl.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

void square_sums_segments(const SquareSumsArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
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

void square_sums(CpuStream& stream, std::span<const SquareSumsArgs> all) {
  int64_t total = 0;
  for (const SquareSumsArgs& a : all) total += segments_of(a.n);
  stream.parallel_for(total, 8, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const SquareSumsArgs& a : all) {
      const int64_t from = std::max<int64_t>(begin - first, 0), to = std::min(end - first, segments_of(a.n));
      if (from < to) ELINVAR_KERNEL(square_sums_segments, a.x.dtype)(a, from, to);
      first += segments_of(a.n);
    }
  });
}

namespace {

// Returns the segments' sums of all tensors, on the CPU.
Tensor sums_of_segments(std::span<const Tensor> tensors) {
  std::vector<Tensor> dense;
  int64_t segments = 0;
  for (const Tensor& tensor : tensors) {
    check_float("global_norm", tensor);
    dense.push_back(tensor.to_contiguous());
    segments += segments_of(tensor.numel());
  }
  const Device device = dense.empty() ? Device{} : dense[0].device();
  Tensor partial = Tensor::empty({segments}, DType::f64, device);
  std::vector<SquareSumsArgs> all;
  auto* at = static_cast<double*>(partial.raw());
  for (const Tensor& x : dense) {
    check(x.device() == device, "[global_norm] tensors must be on one device, got {} and {}", name_of(device.kind),
          name_of(x.device().kind));
    all.push_back({in(x), Out{at, DType::f64}, x.numel()});
    at += segments_of(x.numel());
  }
  on(device, [&](auto& stream) { square_sums(stream, all); });
  return partial.to(Device{});
}

double added(std::span<const double> sums) {
  double sum = 0.0;
  for (const double s : sums) sum += s;
  return sum;
}

std::vector<double> segment_sums_of(std::span<const Tensor> tensors) {
  const Tensor partial = sums_of_segments(tensors);
  const std::span<const double> sums = partial.span<double>();
  return {sums.begin(), sums.end()};
}

double square_sum_of(std::span<const Tensor> tensors) {
  const Tensor partial = sums_of_segments(tensors);
  return added(partial.span<double>());
}

const Op kSegmentSums("segment_sums(tensors) -> sums", segment_sums_of);
const Op kSquareSum("square_sum(tensors) -> sum", square_sum_of);

}  // namespace

std::vector<double> segment_sums(std::span<const Tensor> tensors) { return kSegmentSums(tensors); }
double square_sum(std::span<const Tensor> tensors) { return kSquareSum(tensors); }
double global_norm(std::span<const Tensor> tensors) { return std::sqrt(square_sum(tensors)); }
double global_norm(std::span<const double> segment_sums) { return std::sqrt(added(segment_sums)); }

}  // namespace elinvar
#endif
