#include "tensor/cuda/kernel.h"

#include "tensor/ops/conv2d_depthwise.h"
#include "tensor/simd-inl.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

// Element (n, h, w, c) of images, with c the fastest index: neighbouring threads are neighbouring channels.
struct Place {
  int n, h, w, c;
  __device__ Place(int64_t at, int64_t height, int64_t width, int64_t channels) {
    const int64_t pixel = at / channels, row = pixel / width;
    c = static_cast<int>(at - pixel * channels);
    w = static_cast<int>(pixel - row * width);
    n = static_cast<int>(row / height);
    h = static_cast<int>(row - n * height);
  }
};

// One thread per element of the result: at most kChunk taps, one chain.
__global__ void forward_elements(ConvArgs args) {
  const ConvGeometry& g = args.g;
  const float *x = args.x.as<float>(), *w = args.w.as<float>(), *bias = static_cast<const float*>(args.bias);
  const int taps = static_cast<int>(g.kh * g.kw);
  for (int64_t at = thread_of_grid(); at < g.n * g.oh * g.ow * g.c; at += grid_stride()) {
    const Place p(at, g.oh, g.ow, g.c);
    V acc{0.0f};
    for (int kh = 0, tap = 0; kh < g.kh; ++kh) {
      const int64_t h = p.h * g.stride_h - g.pad_h + kh * g.dilation_h;
      for (int kw = 0; kw < g.kw; ++kw, ++tap) {
        const int64_t v = p.w * g.stride_w - g.pad_w + kw * g.dilation_w;
        if (h < 0 || h >= g.h || v < 0 || v >= g.w) continue;
        acc = fma(V{x[((p.n * g.h + h) * g.w + v) * g.c + p.c]}, V{w[p.c * taps + tap]}, acc);
      }
    }
    V sum = V{0.0f} + acc;
    if (bias) sum = sum + V{bias[p.c]};
    args.y.as<float>()[at] = sum.v;
  }
}

__global__ void grad_input_elements(ConvGradInputArgs args) {
  const ConvGeometry& g = args.g;
  const float *dy = args.dy.as<float>(), *w = args.w.as<float>();
  const int taps = static_cast<int>(g.kh * g.kw);
  const int stride_h = static_cast<int>(g.stride_h), stride_w = static_cast<int>(g.stride_w);
  for (int64_t at = thread_of_grid(); at < g.n * g.h * g.w * g.c; at += grid_stride()) {
    const Place p(at, g.h, g.w, g.c);
    V acc{0.0f};
    for (int kh = 0, tap = 0; kh < g.kh; ++kh) {
      const int down = static_cast<int>(p.h + g.pad_h - kh * g.dilation_h), oh = down / stride_h;
      for (int kw = 0; kw < g.kw; ++kw, ++tap) {
        const int right = static_cast<int>(p.w + g.pad_w - kw * g.dilation_w), ow = right / stride_w;
        if (down < 0 || right < 0 || oh * stride_h != down || ow * stride_w != right || oh >= g.oh || ow >= g.ow)
          continue;
        acc = fma(V{dy[((p.n * g.oh + oh) * g.ow + ow) * g.c + p.c]}, V{w[p.c * taps + tap]}, acc);
      }
    }
    args.dx.as<float>()[at] = (V{0.0f} + acc).v;
  }
}

// One thread per chunk of positions, tap and channel: sums[chunk][tap][c].
__global__ void grad_filter_chunks(ConvGradFilterArgs args, float* sums, int64_t chunks) {
  const ConvGeometry& g = args.g;
  const float *dy = args.dy.as<float>(), *x = args.x.as<float>();
  const int64_t taps = g.kh * g.kw, positions = g.n * g.oh * g.ow;
  for (int64_t at = thread_of_grid(); at < chunks * taps * g.c; at += grid_stride()) {
    const int64_t c = at % g.c, tap = at / g.c % taps, first = at / g.c / taps * kChunk;
    const int64_t end = positions - first < kChunk ? positions : first + kChunk;
    const int64_t down = tap / g.kw * g.dilation_h - g.pad_h, right = tap % g.kw * g.dilation_w - g.pad_w;
    Place p(first, g.oh, g.ow, 1);
    V acc{0.0f};
    for (int64_t k = first; k < end; ++k) {
      const int64_t h = p.h * g.stride_h + down, v = p.w * g.stride_w + right;
      if (h >= 0 && h < g.h && v >= 0 && v < g.w)
        acc = fma(V{dy[k * g.c + c]}, V{x[((p.n * g.h + h) * g.w + v) * g.c + c]}, acc);
      if (++p.w < g.ow) continue;
      p.w = 0;
      if (++p.h < g.oh) continue;
      p.h = 0;
      ++p.n;
    }
    sums[at] = acc.v;
  }
}

// The thread of a channel and tap adds its chunks to groups, and these to the result.
__global__ void grad_filter_groups(ConvGradFilterArgs args, const float* sums, int64_t chunks) {
  const ConvGeometry& g = args.g;
  const int64_t taps = g.kh * g.kw, all = taps * g.c;
  for (int64_t at = thread_of_grid(); at < all; at += grid_stride()) {
    V total{0.0f}, group{0.0f};
#pragma unroll 4
    for (int64_t s = 0; s < chunks; ++s) {
      group = group + V{sums[s * all + at]};
      if ((s + 1) % kGroup != 0 && s + 1 < chunks) continue;
      total = total + group;
      group = V{0.0f};
    }
    args.dw.as<float>()[at % g.c * taps + at / g.c] = total.v;
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void depthwise_forward(Gpu& stream, const ConvArgs& a) {
  launch(stream, "conv2d_depthwise", {.blocks = blocks_for(a.g.n * a.g.oh * a.g.ow * a.g.c)},
         HWY_NAMESPACE::forward_elements, a);
}

template <>
void depthwise_grad_input(Gpu& stream, const ConvGradInputArgs& a) {
  launch(stream, "conv2d_depthwise_grad_input", {.blocks = blocks_for(a.g.n * a.g.h * a.g.w * a.g.c)},
         HWY_NAMESPACE::grad_input_elements, a);
}

template <>
void depthwise_grad_filter(Gpu& stream, const ConvGradFilterArgs& a) {
  const int64_t chunks = (a.g.n * a.g.oh * a.g.ow + kChunk - 1) / kChunk, filters = a.g.kh * a.g.kw * a.g.c;
  const DeviceScratch<float> sums(stream, chunks * filters);
  launch(stream, "conv2d_depthwise_grad_filter", {.blocks = blocks_for(chunks * filters)},
         HWY_NAMESPACE::grad_filter_chunks, a, sums.data(), chunks);
  launch(stream, "conv2d_depthwise_grad_filter", {.blocks = blocks_for(filters)}, HWY_NAMESPACE::grad_filter_groups, a,
         static_cast<const float*>(sums.data()), chunks);
}

}  // namespace elinvar
