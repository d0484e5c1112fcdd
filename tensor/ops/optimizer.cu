#include "tensor/cuda/kernel.h"

#include "tensor/cuda/many.h"
#include "tensor/cuda/reduce.h"
#include "tensor/ops/optimizer-inl.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

constexpr int kThreads = 256, kOfThread = 4;  // elements per thread, whose loads overlap
constexpr int64_t kOfBlock = int64_t{kThreads} * kOfThread;

// Calls f(k, i) for the elements i < n of a block's thread, k = 0, 1, ...
template <class F>
__device__ void each_element(int64_t block, int64_t n, F f) {
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) {
    const int64_t i = block * kOfBlock + k * kThreads + threadIdx.x;
    if (i < n) f(k, i);
  }
}

template <bool kMomentum>
__device__ void sgd_block(const SgdArgs& a, int64_t block) {
  const SgdUpdate<float, kMomentum> update(a);
  const float* g = a.g.as<float>();
  float *p = a.p.as<float>(), *v = a.v.as<float>();
  V vg[kOfThread], vp[kOfThread], vv[kOfThread];
  each_element(block, a.n, [&](int k, int64_t i) {
    vg[k] = {g[i]};
    vp[k] = {p[i]};
    vv[k] = kMomentum ? V{v[i]} : V{0.0f};
  });
  each_element(block, a.n, [&](int k, int64_t i) {
    p[i] = update(vg[k], vp[k], vv[k]).v;
    if constexpr (kMomentum) v[i] = vv[k].v;
  });
}

__global__ void sgd_blocks(Many<SgdArgs> all) {
  const auto [a, block] = all.find();
  if (a.v.data) sgd_block<true>(a, block);
  else sgd_block<false>(a, block);
}

__global__ void adam_blocks(Many<AdamArgs> all) {
  const auto [a, block] = all.find();
  const AdamUpdate<float> update(a);
  const float* g = a.g.as<float>();
  float *p = a.p.as<float>(), *m = a.m.as<float>(), *v = a.v.as<float>();
  V vg[kOfThread], vp[kOfThread], vm[kOfThread], vv[kOfThread];
  each_element(block, a.n, [&](int k, int64_t i) {
    vg[k] = {g[i]};
    vp[k] = {p[i]};
    vm[k] = {m[i]};
    vv[k] = {v[i]};
  });
  each_element(block, a.n, [&](int k, int64_t i) {
    p[i] = update(vg[k], vp[k], vm[k], vv[k]).v;
    m[i] = vm[k].v;
    v[i] = vv[k].v;
  });
}

// One warp per segment.
__global__ void lamb_segments(LambArgs a) {
  const int64_t segment = thread_of_grid() / 32, first = segment * kRowSegment;
  if (first >= a.n) return;
  const int64_t n = a.n - first < kRowSegment ? a.n - first : kRowSegment;
  const LambUpdate<float> update(a);
  const float *g = a.g.as<float>() + first, *p = a.p.as<float>() + first;
  float *m = a.m.as<float>() + first, *v = a.v.as<float>() + first;
  const auto add_square = [](double acc, float x) {
    const Vec<double> wide{static_cast<double>(x)};
    return fma(wide, wide, Vec<double>{acc}).v;
  };
  const double of_p = warp_segment_reduce<double>(0, n, [&](double acc, int64_t i) { return add_square(acc, p[i]); });
  const double of_u = warp_segment_reduce<double>(0, n, [&](double acc, int64_t i) {
    V vm{m[i]}, vv{v[i]};
    const V u = update.moments(V{g[i]}, V{p[i]}, vm, vv);
    m[i] = vm.v;
    v[i] = vv.v;
    return add_square(acc, u.v);
  });
  if (threadIdx.x % 32 != 0) return;
  a.square_sums.as<double>()[2 * segment] = of_p;
  a.square_sums.as<double>()[2 * segment + 1] = of_u;
}

__global__ void lamb_elements(LambArgs a) {
  const LambUpdate<float> update(a);
  const float *m = a.m.as<float>(), *v = a.v.as<float>();
  float* p = a.p.as<float>();
  for (int64_t i = thread_of_grid(); i < a.n; i += grid_stride()) p[i] = update.apply(V{p[i]}, V{m[i]}, V{v[i]}).v;
}

template <class Args>
void launch_updates(Gpu& stream, const char* name, std::span<const Args> all, void (*kernel)(Many<Args>)) {
  launch_many(
      stream, name, all, [](const Args& a) { return (a.n + kOfBlock - 1) / kOfBlock; }, kernel);
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void sgd(Gpu& stream, std::span<const SgdArgs> all) {
  HWY_NAMESPACE::launch_updates(stream, "sgd", all, HWY_NAMESPACE::sgd_blocks);
}

template <>
void adam(Gpu& stream, std::span<const AdamArgs> all) {
  HWY_NAMESPACE::launch_updates(stream, "adam", all, HWY_NAMESPACE::adam_blocks);
}

template <>
void lamb_moments(Gpu& stream, const LambArgs& a) {
  launch(stream, "lamb_moments", {.blocks = warp_blocks(segments_of(a.n))}, HWY_NAMESPACE::lamb_segments, a);
}

template <>
void lamb_apply(Gpu& stream, const LambArgs& a) {
  launch(stream, "lamb_apply", {.blocks = blocks_for(a.n)}, HWY_NAMESPACE::lamb_elements, a);
}

}  // namespace elinvar
