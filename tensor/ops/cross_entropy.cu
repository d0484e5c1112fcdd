#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/cuda/reduce.h"
#include "tensor/math-inl.h"
#include "tensor/ops/cross_entropy.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

// One warp per row.
template <class T>
__global__ void losses(CrossEntropyArgs a) {
  const int64_t row = thread_of_grid() / 32, n = a.classes;
  if (row >= a.rows) return;
  const bool writes = threadIdx.x % 32 == 0;
  const Reads<T> s{a.logits.as<T>() + row * n};
  const int64_t target = a.targets.as<int64_t>()[row];
  if (target == a.ignored) {
    if (writes) a.loss.as<float>()[row] = a.m.as<float>()[row] = a.r.as<float>()[row] = 0.0f;
    return;
  }
  const V m{warp_row_max<float>(s, n)};
  const V l{warp_row_sum<float>(n, [&](int64_t i) { return exp(V{s[i]} - m).v; })};
  const V log_l = log(l);
  V loss = log_l - (V{s[target]} - m);
  if (a.smoothing != 0.0) {
    const V all{warp_row_sum<float>(n, [&](int64_t i) { return (V{s[i]} - m).v; })};
    const V smoothing{static_cast<float>(a.smoothing)}, rest{static_cast<float>(1.0 - a.smoothing)};
    loss = rest * loss + smoothing * (log_l - all / V{static_cast<float>(n)});
  }
  if (!writes) return;
  a.loss.as<float>()[row] = loss.v;
  a.m.as<float>()[row] = m.v;
  a.r.as<float>()[row] = (V{1.0f} / l).v;
}

constexpr int kThreads = 256, kOfThread = 8;                 // elements per thread, whose loads overlap
constexpr int64_t kOfBlock = int64_t{kThreads} * kOfThread;  // classes of a row per block

template <class T>
__global__ void gradients(CrossEntropyBackwardArgs a, int64_t pieces, float q_elsewhere, float q_target) {
  const int64_t row = int64_t{blockIdx.x} / pieces, first = int64_t{blockIdx.x} % pieces * kOfBlock, n = a.classes;
  const T* s = a.logits.as<T>() + row * n;
  T* ds = a.dlogits.as<T>() + row * n;
  const int64_t target = a.targets.as<int64_t>()[row];
  const V dy{*a.dy.as<float>()}, m{a.m.as<float>()[row]}, r{a.r.as<float>()[row]};
  T logits[kOfThread];  // read before any is written, because ds may be s
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) {
    const int64_t i = first + k * kThreads + threadIdx.x;
    if (i < n) logits[k] = s[i];
  }
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) {
    const int64_t i = first + k * kThreads + threadIdx.x;
    if (i >= n) break;
    const V q{i == target - a.first ? q_target : q_elsewhere}, x{widened(logits[k])};
    ds[i] = stored<T>(target == a.ignored ? 0.0f : ((exp(x - m) * r - q) * dy).v);
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void cross_entropy(Gpu& stream, const CrossEntropyArgs& a) {
  visit_activation(a.logits.dtype, [&](auto zero) {
    launch(stream, "cross_entropy", {.blocks = warp_blocks(a.rows)}, HWY_NAMESPACE::losses<decltype(zero)>, a);
  });
}

template <>
void cross_entropy_backward(Gpu& stream, const CrossEntropyBackwardArgs& a) {
  using namespace HWY_NAMESPACE;
  const double q = a.smoothing / static_cast<double>(a.whole);
  const int64_t pieces = (a.classes + kOfBlock - 1) / kOfBlock;
  visit_activation(a.logits.dtype, [&](auto zero) {
    launch(stream, "cross_entropy_backward", {.blocks = a.rows * pieces, .threads = kThreads},
           gradients<decltype(zero)>, a, pieces, static_cast<float>(q), static_cast<float>((1.0 - a.smoothing) + q));
  });
}

}  // namespace elinvar
