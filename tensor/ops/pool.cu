#include "tensor/cuda/kernel.h"

#include "tensor/cuda/columns.h"
#include "tensor/cuda/elements.h"
#include "tensor/ops/pool.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// One thread per element of the result.
struct Place {
  int64_t image, h, w, c;
  __device__ Place(int64_t i, int64_t height, int64_t width, int64_t channels)
      : image(i / channels / width / height),
        h(i / channels / width % height),
        w(i / channels % width),
        c(i % channels) {}
};

template <class T>
__global__ void max_elements(PoolArgs a) {
  const int64_t n = a.images * a.h.out * a.w.out * a.channels;
  for (int64_t at = thread_of_grid(); at < n; at += grid_stride()) {
    const Place o(at, a.h.out, a.w.out, a.channels);
    const PoolWindow h(a.h, o.h), w(a.w, o.w);
    const Reads<T> image{a.x.as<T>() + o.image * a.h.in * a.w.in * a.channels + o.c};
    const auto value = [&](int64_t i, int64_t j) { return image[(i * a.w.in + j) * a.channels]; };
    float best = value(h.begin, w.begin);
    int64_t winner = (h.begin - h.origin) * w.extent + w.begin - w.origin;
    for (int64_t i = h.begin; i < h.end; ++i) {
      for (int64_t j = w.begin; j < w.end; ++j) {
        const float v = value(i, j);
        if (!(v <= best) && best == best) {
          best = v;
          winner = (i - h.origin) * w.extent + j - w.origin;
        }
      }
    }
    a.y.as<T>()[at] = stored<T>(best);
    if (a.winner.data) a.winner.as<float>()[at] = static_cast<float>(winner);
  }
}

template <class T>
__global__ void avg_elements(PoolArgs a) {
  const int64_t n = a.images * a.h.out * a.w.out * a.channels;
  for (int64_t at = thread_of_grid(); at < n; at += grid_stride()) {
    const Place o(at, a.h.out, a.w.out, a.channels);
    const PoolWindow h(a.h, o.h), w(a.w, o.w);
    const Reads<T> image{a.x.as<T>() + o.image * a.h.in * a.w.in * a.channels + o.c};
    // Absent positions keep their places in the chains.
    const float sum = column_sum_of_thread<float>(h.extent * w.extent, [&](float acc, int64_t k) {
      const int64_t i = h.origin + k / w.extent, j = w.origin + k % w.extent;
      const bool present = i >= h.begin && i < h.end && j >= w.begin && j < w.end;
      return present ? acc + image[(i * a.w.in + j) * a.channels] : acc;
    });
    a.y.as<T>()[at] = stored<T>(sum / static_cast<float>(pool_divisor(h, w, a.present_only)));
  }
}

// Adds term(offset of the window's element, oh, ow, ih, iw) over the windows that contain a position, in order from +0.
template <class T, class Term>
__device__ void gather_elements(const PoolBackwardArgs& a, Term term) {
  const int64_t n = a.images * a.h.in * a.w.in * a.channels;
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    const Place p(i, a.h.in, a.w.in, a.channels);
    float acc = 0.0f;
    for (int64_t oh = a.h.first_output(p.h); oh <= a.h.last_output(p.h); ++oh)
      for (int64_t ow = a.w.first_output(p.w); ow <= a.w.last_output(p.w); ++ow)
        acc = acc + term(((p.image * a.h.out + oh) * a.w.out + ow) * a.channels + p.c, oh, ow, p.h, p.w);
    a.dx.as<T>()[i] = stored<T>(acc);
  }
}

template <class T>
__global__ void max_gradients(PoolBackwardArgs a) {
  const Reads<T> dy{a.dy.as<T>()};
  const float* winner = a.winner.as<float>();
  gather_elements<T>(a, [&](int64_t at, int64_t oh, int64_t ow, int64_t ih, int64_t iw) {
    const auto place = static_cast<float>((ih - a.h.begin(oh)) * a.w.kernel + iw - a.w.begin(ow));
    return winner[at] == place ? dy[at] : 0.0f;
  });
}

template <class T>
__global__ void avg_gradients(PoolBackwardArgs a) {
  const Reads<T> dy{a.dy.as<T>()};
  gather_elements<T>(a, [&](int64_t at, int64_t oh, int64_t ow, int64_t, int64_t) {
    return dy[at] / static_cast<float>(pool_divisor(PoolWindow(a.h, oh), PoolWindow(a.w, ow), a.present_only));
  });
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void max_pool(Gpu& stream, const PoolArgs& a) {
  visit_activation(a.x.dtype, [&](auto zero) {
    launch(stream, "max_pool2d", {.blocks = blocks_for(a.images * a.h.out * a.w.out * a.channels)},
           HWY_NAMESPACE::max_elements<decltype(zero)>, a);
  });
}

template <>
void avg_pool(Gpu& stream, const PoolArgs& a) {
  visit_activation(a.x.dtype, [&](auto zero) {
    launch(stream, "avg_pool2d", {.blocks = blocks_for(a.images * a.h.out * a.w.out * a.channels)},
           HWY_NAMESPACE::avg_elements<decltype(zero)>, a);
  });
}

template <>
void max_pool_backward(Gpu& stream, const PoolBackwardArgs& a) {
  visit_activation(a.dy.dtype, [&](auto zero) {
    launch(stream, "max_pool2d_backward", {.blocks = blocks_for(a.images * a.h.in * a.w.in * a.channels)},
           HWY_NAMESPACE::max_gradients<decltype(zero)>, a);
  });
}

template <>
void avg_pool_backward(Gpu& stream, const PoolBackwardArgs& a) {
  visit_activation(a.dy.dtype, [&](auto zero) {
    launch(stream, "avg_pool2d_backward", {.blocks = blocks_for(a.images * a.h.in * a.w.in * a.channels)},
           HWY_NAMESPACE::avg_gradients<decltype(zero)>, a);
  });
}

}  // namespace elinvar
