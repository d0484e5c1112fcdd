#include "tensor/cuda/kernel.h"

#include <limits>

#include "tensor/cuda/assume.h"
#include "tensor/cuda/columns.h"
#include "tensor/cuda/elements.h"
#include "tensor/ops/pool.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// Registers leave room for this many blocks on a multiprocessor, so that loads of many threads overlap.
template <int kCount>
constexpr int kBlocks = kCount == 1 ? 1 : 3;
template <int kCount>  // of maxima
constexpr int kGradientBlocks = kCount == 8 ? 4 : kBlocks<kCount>;

// One thread per piece of kCount adjacent channels of a position: one access of 16 bytes, or a single element.
struct Place {
  int64_t image, h, w, c;  // c counts pieces
  __device__ Place(int64_t i, int64_t height, int64_t width, int64_t pieces) {
    const int64_t position = i / pieces, row = position / width;
    image = row / height;
    h = row - image * height;
    w = position - row * width;
    c = i - position * pieces;
  }
};

// Windows of maxima are fixed (max_pool checks it).
template <class Args>
__device__ void assume_fixed_windows(const Args& a) {
  assume(a.h.kernel > 0);
  assume(a.w.kernel > 0);
}

template <class T, int kCount>
__global__ void __launch_bounds__(Grid{}.threads, kBlocks<kCount>) max_elements(PoolArgs a) {
  assume_fixed_windows(a);
  constexpr int kColumns = 4;  // of a row of the window, whose loads overlap
  const int64_t pieces = a.channels / kCount, n = a.images * a.h.out * a.w.out * pieces;
  for (int64_t at = thread_of_grid(); at < n; at += grid_stride()) {
    const Place o(at, a.h.out, a.w.out, pieces);
    const PoolWindow h(a.h, o.h), w(a.w, o.w);
    const auto* image = pieces_of<kCount>(a.x.as<T>()) + o.image * a.h.in * a.w.in * pieces + o.c;
    const auto height = static_cast<int>(h.end - h.begin), width = static_cast<int>(w.end - w.begin);
    float best[kCount];
    int winner[kCount];
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      best[e] = -std::numeric_limits<float>::infinity();
      winner[e] = static_cast<int>((h.begin - h.origin) * w.extent + w.begin - w.origin);
    }
    for (int i = 0; i < height; ++i) {
      const auto* row = image + ((h.begin + i) * a.w.in + w.begin) * pieces;
      const auto first = static_cast<int>((h.begin + i - h.origin) * w.extent + w.begin - w.origin);
      for (int j = 0; j < width; j += kColumns) {
        Some<T, kCount> some[kColumns];
#pragma unroll
        for (int k = 0; k < kColumns; ++k)
          if (j + k < width) some[k] = row[(j + k) * pieces];
#pragma unroll
        for (int k = 0; k < kColumns; ++k) {
          if (j + k >= width) break;
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            const float v = some[k].at(e);
            if (!(v <= best[e]) && best[e] == best[e]) {
              best[e] = v;
              winner[e] = first + j + k;
            }
          }
        }
      }
    }
    pieces_of<kCount>(a.y.as<T>())[at] = Some<T, kCount>::of([&](int e) { return best[e]; });
    if (!a.winner.data) continue;
    pieces_of<kCount>(a.winner.as<float>())[at] =
        Some<float, kCount>::of([&](int e) { return static_cast<float>(winner[e]); });
  }
}

template <class T>
__global__ void avg_elements(PoolArgs a) {
  const int64_t n = a.images * a.h.out * a.w.out * a.channels;
  for (int64_t at = thread_of_grid(); at < n; at += grid_stride()) {
    const Place o(at, a.h.out, a.w.out, a.channels);
    const PoolWindow h(a.h, o.h), w(a.w, o.w);
    const Reads<T> image{a.x.as<T>() + o.image * a.h.in * a.w.in * a.channels + o.c};
    // Absent positions keep their places in the chains. The sum takes positions in order.
    int64_t i = h.origin, j = w.origin;
    const float sum = column_sum_of_thread<float>(h.extent * w.extent, [&](float acc, int64_t) {
      const bool present = i >= h.begin && i < h.end && j >= w.begin && j < w.end;
      const float next = present ? acc + image[(i * a.w.in + j) * a.channels] : acc;
      if (++j == w.origin + w.extent) {
        j = w.origin;
        ++i;
      }
      return next;
    });
    a.y.as<T>()[at] = stored<T>(sum / static_cast<float>(pool_divisor(h, w, a.present_only)));
  }
}

// For each piece of dx, adds the terms of the windows that contain its position, in order from +0. The piece at `at` of
// a window's elements has the terms term(e, oh, ow, ih, iw), where Terms(at) is term.
template <class T, int kCount, class Terms>
__device__ void gather_elements(const PoolBackwardArgs& a, Terms terms) {
  const int64_t pieces = a.channels / kCount, n = a.images * a.h.in * a.w.in * pieces;
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    const Place p(i, a.h.in, a.w.in, pieces);
    float acc[kCount] = {};
    const int64_t last_h = a.h.last_output(p.h), first_w = a.w.first_output(p.w), last_w = a.w.last_output(p.w);
    for (int64_t oh = a.h.first_output(p.h); oh <= last_h; ++oh) {
      for (int64_t ow = first_w; ow <= last_w; ++ow) {
        const auto term = terms(((p.image * a.h.out + oh) * a.w.out + ow) * pieces + p.c, oh, ow, p.h, p.w);
#pragma unroll
        for (int e = 0; e < kCount; ++e) acc[e] = acc[e] + term(e);
      }
    }
    pieces_of<kCount>(a.dx.as<T>())[i] = Some<T, kCount>::of([&](int e) { return acc[e]; });
  }
}

template <class T, int kCount>
__global__ void __launch_bounds__(Grid{}.threads, kGradientBlocks<kCount>) max_gradients(PoolBackwardArgs a) {
  assume_fixed_windows(a);
  const auto* dy = pieces_of<kCount>(a.dy.as<T>());
  const auto* winner = pieces_of<kCount>(a.winner.as<float>());
  gather_elements<T, kCount>(a, [&](int64_t at, int64_t oh, int64_t ow, int64_t ih, int64_t iw) {
    const auto place = static_cast<float>((ih - a.h.begin(oh)) * a.w.kernel + iw - a.w.begin(ow));
    return [place, won = winner[at], of_dy = dy[at]](int e) { return won.at(e) == place ? of_dy.at(e) : 0.0f; };
  });
}

template <class T, int kCount>
__global__ void __launch_bounds__(Grid{}.threads, kBlocks<kCount>) avg_gradients(PoolBackwardArgs a) {
  const auto* dy = pieces_of<kCount>(a.dy.as<T>());
  gather_elements<T, kCount>(a, [&](int64_t at, int64_t oh, int64_t ow, int64_t, int64_t) {
    const auto divisor = static_cast<float>(pool_divisor(PoolWindow(a.h, oh), PoolWindow(a.w, ow), a.present_only));
    return [divisor, of_dy = dy[at]](int e) { return of_dy.at(e) / divisor; };
  });
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void max_pool(Gpu& stream, const PoolArgs& a) {
  visit_pieces(
      a.channels, a.x.dtype,
      [&]<class T, int kCount>() {
        launch(stream, "max_pool2d", {.blocks = blocks_for(a.images * a.h.out * a.w.out * a.channels / kCount)},
               HWY_NAMESPACE::max_elements<T, kCount>, a);
      },
      a.x, a.y, a.winner);
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
  visit_pieces(
      a.channels, a.dy.dtype,
      [&]<class T, int kCount>() {
        launch(stream, "max_pool2d_backward", {.blocks = blocks_for(a.images * a.h.in * a.w.in * a.channels / kCount)},
               HWY_NAMESPACE::max_gradients<T, kCount>, a);
      },
      a.dy, a.winner, a.dx);
}

template <>
void avg_pool_backward(Gpu& stream, const PoolBackwardArgs& a) {
  visit_pieces(
      a.channels, a.dy.dtype,
      [&]<class T, int kCount>() {
        launch(stream, "avg_pool2d_backward", {.blocks = blocks_for(a.images * a.h.in * a.w.in * a.channels / kCount)},
               HWY_NAMESPACE::avg_gradients<T, kCount>, a);
      },
      a.dy, a.dx);
}

}  // namespace elinvar
