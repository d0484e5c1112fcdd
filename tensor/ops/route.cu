#include "tensor/cuda/kernel.h"

#include <limits>

#include "tensor/cuda/reduce.h"
#include "tensor/math-inl.h"
#include "tensor/ops/route.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

// A logit and its expert; none: expert is negative.
struct Candidate {
  float x;
  int64_t expert;
  __device__ bool before(const Candidate& other) const {
    return expert >= 0 && (other.expert < 0 || chosen_before(x, expert, other.x, other.expert));
  }
};

// Returns to every thread of a warp the first candidate of all threads.
__device__ Candidate first_of_warp(Candidate best) {
  for (int s = 16; s > 0; s /= 2) {
    const Candidate other{__shfl_xor_sync(kWholeWarp, best.x, s), __shfl_xor_sync(kWholeWarp, best.expert, s)};
    if (other.before(best)) best = other;
  }
  return best;
}

// The row of a token's logits is one segment.
__device__ float sum_of_exponentials(const float* x, V m, int64_t n) {
  return warp_segment_reduce<float>(0, n, [&](float acc, int64_t i) { return acc + exp(V{x[i]} - m).v; });
}

// One warp per token.
__global__ void choose_experts(RouteArgs a) {
  const int64_t token = thread_of_grid() / 32, n = a.experts;
  if (token >= a.tokens) return;
  const float* x = a.logits.as<float>() + token * n;
  int64_t* expert = a.expert.as<int64_t>() + token;
  float* weight = a.weight.as<float>() + token;
  const int thread = static_cast<int>(threadIdx.x % 32);
  int numbers = 1;
  for (int64_t i = thread; i < n; i += 32) numbers &= x[i] == x[i];
  for (int s = 16; s > 0; s /= 2) numbers &= __shfl_xor_sync(kWholeWarp, numbers, s);
  Candidate last{0.0f, -1};
  V m{0.0f};
  float l = 0.0f;
  for (int64_t j = 0; j < a.chosen; ++j) {
    Candidate best{0.0f, -1};
    for (int64_t i = thread; i < n; i += 32) {
      const Candidate other{x[i], i};
      if ((last.expert < 0 || last.before(other)) && other.before(best)) best = other;
    }
    last = first_of_warp(best);
    if (j == 0) {
      m.v = numbers != 0 ? last.x : std::numeric_limits<float>::quiet_NaN();
      if (a.chosen == 1) l = sum_of_exponentials(x, m, n);
    }
    const float e = exp(V{last.x} - m).v;
    if (a.chosen > 1) l += e;
    if (thread == 0) {
      expert[j * a.tokens] = last.expert;
      weight[j * a.tokens] = e;
    }
  }
  if (thread != 0) return;
  const float r = 1.0f / l;
  for (int64_t j = 0; j < a.chosen; ++j) weight[j * a.tokens] *= r;
}

constexpr int kServers = 256;

// One block per expert, which finds its choices: each thread counts those in an interval, and then numbers them.
__global__ void serve_choices(RouteArgs a) {
  __shared__ int64_t own[kServers], before[kServers];
  const auto thread = static_cast<int64_t>(threadIdx.x), e = static_cast<int64_t>(blockIdx.x);
  const int64_t choices = a.chosen * a.tokens, each = (choices + kServers - 1) / kServers;
  const int64_t begin = thread * each, end = begin + each < choices ? begin + each : choices;
  const int64_t* expert = a.expert.as<int64_t>();
  int64_t mine = 0, lower = 0;
  for (int64_t i = begin; i < end; ++i) {
    mine += expert[i] == e ? 1 : 0;
    lower += expert[i] < e ? 1 : 0;
  }
  own[thread] = mine;
  before[thread] = lower;
  __syncthreads();
  int64_t start = 0, position = 0, all = 0;
  for (int i = 0; i < kServers; ++i) {
    start += before[i];
    position += i < thread ? own[i] : 0;
    all += own[i];
  }
  for (int64_t i = begin; i < end; ++i) {
    if (expert[i] != e) continue;
    a.position.as<int64_t>()[i] = position;
    a.order.as<int64_t>()[start + position++] = i;
  }
  if (thread != 0) return;
  a.start.as<int64_t>()[e] = start;
  if (e + 1 == a.experts) a.start.as<int64_t>()[a.experts] = start + all;
}

// One warp per token.
__global__ void gradients_of_logits(RouteBackwardArgs a) {
  const int64_t token = thread_of_grid() / 32, n = a.experts;
  if (token >= a.tokens) return;
  const float *x = a.logits.as<float>() + token * n, *w = a.weight.as<float>() + token,
              *dw = a.dweight.as<float>() + token;
  const int64_t *expert = a.expert.as<int64_t>() + token, *start = a.start.as<int64_t>();
  float* dx = a.dlogits.as<float>() + token * n;
  const int thread = static_cast<int>(threadIdx.x % 32);
  const bool of_all = a.chosen == 1 || a.balance != 0 || a.z != 0;
  V m{0.0f}, r{0.0f}, s{0.0f}, z{0.0f};
  const auto p = [&](int64_t i) { return (exp(V{x[i]} - m) * r).v; };
  const auto g = [&](int64_t i) {
    const float of_load = static_cast<float>(start[i + 1] - start[i]) * static_cast<float>(a.balance);
    return a.chosen == 1 && i == expert[0] ? of_load + dw[0] : of_load;
  };
  if (of_all) {
    // A NaN makes l NaN, whichever element the maximum is.
    m.v = warp_row_max<float>(x, n);
    const float l = sum_of_exponentials(x, m, n);
    r.v = 1.0f / l;
    s.v = warp_segment_reduce<float>(0, n, [&](float acc, int64_t i) { return fma(V{p(i)}, V{g(i)}, V{acc}).v; });
    if (a.z != 0) z = V{static_cast<float>(a.z)} * (m + log(V{l}));
  }
  float of_choices = 0.0f;
  if (a.chosen > 1)
    for (int64_t j = 0; j < a.chosen; ++j) of_choices = fma(V{w[j * a.tokens]}, V{dw[j * a.tokens]}, V{of_choices}).v;
  for (int64_t i = thread; i < n; i += 32) {
    float y = 0.0f;
    if (of_all) {
      const V pi{p(i)};
      y = fma(z, pi, pi * (V{g(i)} - s)).v;
    }
    for (int64_t j = 0; a.chosen > 1 && j < a.chosen; ++j)
      if (expert[j * a.tokens] == i) y += w[j * a.tokens] * (dw[j * a.tokens] - of_choices);
    dx[i] = y;
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void route(Gpu& stream, const RouteArgs& a) {
  launch(stream, "route_choose", {.blocks = warp_blocks(a.tokens)}, HWY_NAMESPACE::choose_experts, a);
  launch(stream, "route_serve", {.blocks = a.experts, .threads = HWY_NAMESPACE::kServers}, HWY_NAMESPACE::serve_choices,
         a);
}

template <>
void route_backward(Gpu& stream, const RouteBackwardArgs& a) {
  launch(stream, "route_backward", {.blocks = warp_blocks(a.tokens)}, HWY_NAMESPACE::gradients_of_logits, a);
}

}  // namespace elinvar
