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

double square_sum_of(std::span<const Tensor> tensors) {
  const Tensor partial = sums_of_segments(tensors);
  double sum = 0.0;
  for (const double p : partial.span<double>()) sum += p;
  return sum;
}

std::vector<double> norms_of(std::span<const Tensor> tensors, const std::vector<int64_t>& counts) {
  const auto all = static_cast<int64_t>(tensors.size());
  int64_t counted = 0;
  for (const int64_t count : counts) {
    check(count > 0, "[norms] counts must be positive, got {}", count);
    counted += count;
  }
  check(counts.empty() || counted == all, "[norms] counts add up to {}, but there are {} tensors", counted, all);
  const Tensor partial = sums_of_segments(tensors);
  const double* at = partial.data<double>();
  const std::vector<int64_t> runs = counts.empty() ? std::vector<int64_t>(tensors.size(), 1) : counts;
  std::vector<double> found;
  auto tensor = tensors.begin();
  for (const int64_t count : runs) {
    double sum = 0.0;
    for (const auto end = tensor + count; tensor != end; ++tensor)
      for (int64_t s = segments_of(tensor->numel()); s > 0; --s) sum += *at++;
    found.push_back(std::sqrt(sum));
  }
  return found;
}

const Op kSquareSum("square_sum(tensors) -> sum", square_sum_of);
const Op kNorms("norms(tensors, counts) -> norms", norms_of);

}  // namespace

double square_sum(std::span<const Tensor> tensors) { return kSquareSum(tensors); }
double global_norm(std::span<const Tensor> tensors) { return std::sqrt(square_sum(tensors)); }
std::vector<double> norms(std::span<const Tensor> tensors, const std::vector<int64_t>& counts) {
  return kNorms(tensors, counts);
}

}  // namespace elinvar
#endif
