#include "tensor/cuda/kernel.h"

#include "tensor/cuda/product.h"
#include "tensor/ops/conv2d.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// Three products, one for each group: the batch of Factors counts groups.

struct Forward {  // i = (n, oh, ow), k = (kh, kw, c), j = o
  static constexpr bool kAAlongK = true, kBAlongK = true;
  int64_t m, n, k, batch;
  ConvGeometry g;
  const float *x, *w, *bias;
  float* y;

  explicit Forward(const ConvArgs& args)
      : m(args.g.n * args.g.oh * args.g.ow),
        n(args.g.o / args.g.groups),
        k(args.g.kh * args.g.kw * (args.g.c / args.g.groups)),
        batch(args.g.groups),
        g(args.g),
        x(args.x.as<float>()),
        w(args.w.as<float>()),
        bias(static_cast<const float*>(args.bias)),
        y(args.y.as<float>()) {}

  __device__ float a(int64_t group, int64_t i, int64_t at) const {
    const int64_t channels = g.c / g.groups, c = at % channels, tap = at / channels;
    const int64_t h = i / g.ow % g.oh * g.stride_h - g.pad_h + tap / g.kw * g.dilation_h;
    const int64_t v = i % g.ow * g.stride_w - g.pad_w + tap % g.kw * g.dilation_w;
    if (h < 0 || h >= g.h || v < 0 || v >= g.w) return 0.0f;
    return x[((i / (g.oh * g.ow) * g.h + h) * g.w + v) * g.c + group * channels + c];
  }
  __device__ float b(int64_t group, int64_t at, int64_t j) const { return w[(group * n + j) * k + at]; }
  __device__ void store(int64_t group, int64_t i, int64_t j, float sum) const {
    const int64_t o = group * n + j;
    y[i * g.o + o] = bias ? sum + bias[o] : sum;
  }
};

struct GradInput {  // i = (n, h, w), k = (kh, kw, o), j = c
  static constexpr bool kAAlongK = true, kBAlongK = false;
  int64_t m, n, k, batch;
  ConvGeometry g;
  const float *dy, *w;
  float* dx;

  explicit GradInput(const ConvGradInputArgs& args)
      : m(args.g.n * args.g.h * args.g.w),
        n(args.g.c / args.g.groups),
        k(args.g.kh * args.g.kw * (args.g.o / args.g.groups)),
        batch(args.g.groups),
        g(args.g),
        dy(args.dy.as<float>()),
        w(args.w.as<float>()),
        dx(args.dx.as<float>()) {}

  __device__ float a(int64_t group, int64_t i, int64_t at) const {
    const int64_t filters = g.o / g.groups, o = at % filters, tap = at / filters;
    const int64_t h = i / g.w % g.h + g.pad_h - tap / g.kw * g.dilation_h;
    const int64_t v = i % g.w + g.pad_w - tap % g.kw * g.dilation_w;
    if (h < 0 || v < 0 || h % g.stride_h != 0 || v % g.stride_w != 0) return 0.0f;
    const int64_t oh = h / g.stride_h, ow = v / g.stride_w;
    if (oh >= g.oh || ow >= g.ow) return 0.0f;
    return dy[((i / (g.h * g.w) * g.oh + oh) * g.ow + ow) * g.o + group * filters + o];
  }
  __device__ float b(int64_t group, int64_t at, int64_t j) const {
    const int64_t filters = g.o / g.groups, o = at % filters, tap = at / filters;
    return w[((group * filters + o) * g.kh * g.kw + tap) * n + j];
  }
  __device__ void store(int64_t group, int64_t i, int64_t j, float sum) const { dx[i * g.c + group * n + j] = sum; }
};

struct GradFilter {  // i = o, k = (n, oh, ow), j = (kh, kw, c)
  static constexpr bool kAAlongK = false, kBAlongK = false;
  int64_t m, n, k, batch;
  ConvGeometry g;
  const float *dy, *x;
  float* dw;

  explicit GradFilter(const ConvGradFilterArgs& args)
      : m(args.g.o / args.g.groups),
        n(args.g.kh * args.g.kw * (args.g.c / args.g.groups)),
        k(args.g.n * args.g.oh * args.g.ow),
        batch(args.g.groups),
        g(args.g),
        dy(args.dy.as<float>()),
        x(args.x.as<float>()),
        dw(args.dw.as<float>()) {}

  __device__ float a(int64_t group, int64_t i, int64_t at) const { return dy[at * g.o + group * m + i]; }
  __device__ float b(int64_t group, int64_t at, int64_t j) const {
    const int64_t channels = g.c / g.groups, c = j % channels, tap = j / channels;
    const int64_t h = at / g.ow % g.oh * g.stride_h - g.pad_h + tap / g.kw * g.dilation_h;
    const int64_t v = at % g.ow * g.stride_w - g.pad_w + tap % g.kw * g.dilation_w;
    if (h < 0 || h >= g.h || v < 0 || v >= g.w) return 0.0f;
    return x[((at / (g.oh * g.ow) * g.h + h) * g.w + v) * g.c + group * channels + c];
  }
  __device__ void store(int64_t group, int64_t i, int64_t j, float sum) const { dw[(group * m + i) * n + j] = sum; }
};

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void conv2d(Gpu& stream, const ConvArgs& a) {
  HWY_NAMESPACE::multiply(stream, "conv2d", HWY_NAMESPACE::Forward(a));
}

template <>
void conv2d_grad_input(Gpu& stream, const ConvGradInputArgs& a) {
  HWY_NAMESPACE::multiply(stream, "conv2d_grad_input", HWY_NAMESPACE::GradInput(a));
}

template <>
void conv2d_grad_filter(Gpu& stream, const ConvGradFilterArgs& a) {
  HWY_NAMESPACE::multiply(stream, "conv2d_grad_filter", HWY_NAMESPACE::GradFilter(a));
}

}  // namespace elinvar
