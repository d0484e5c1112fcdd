#include "tensor/ops/conv2d.h"

#include <numeric>

#include "tensor/op_check.h"
#include "tensor/ops/conv2d_depthwise.h"
#include "tensor/ops/conv2d_rows.h"
#include "tensor/pack.h"

namespace elinvar {
namespace {

// Filters of one group as the B of a product: element (k, j) at w[k_offset(k) + j * j_step]. Packs strip by strip.
template <class T, class Offset>
void pack_filters(CpuStream& stream, const T* w, int64_t taps, int64_t channels, Offset tap_offset,
                  int64_t channel_step, int64_t j_step, const Strips& strips, T* packed) {
  const int64_t k_count = taps * channels;
  stream.parallel_for(strips.count * taps, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t s = item / taps, tap = item % taps;
      pack_strip(w + tap_offset(tap) + strips.begin(s) * j_step, channel_step, j_step, channels, strips.exist(s),
                 strips.width(s), packed + k_count * strips.begin(s) + tap * channels * strips.width(s));
    }
  });
}

template <class T>
void forward(CpuStream& stream, const ConvArgs& args) {
  const ConvGeometry& g = args.g;
  const int64_t channels = g.c / g.groups, filters = g.o / g.groups, taps = g.kh * g.kw;
  const TileExtent extent = tile_extent(T{});
  const Strips strips(filters, extent);
  Scratch<T> packed(taps * channels * strips.padded_columns());
  Scratch<T> zeros(channels);
  std::fill_n(zeros.data(), channels, T{0});

  PositionGrid grid{.rows = g.oh,
                    .cols = g.ow,
                    .step_y = 1,
                    .first_y = 0,
                    .step_x = 1,
                    .first_x = 0,
                    .scale_y = g.stride_h,
                    .shift_y = -g.pad_h,
                    .scale_x = g.stride_w,
                    .shift_x = -g.pad_w,
                    .taps = {}};
  std::vector<Tap> all;
  for (int64_t i = 0; i < taps; ++i) all.push_back({i * channels, i / g.kw * g.dilation_h, i % g.kw * g.dilation_w});
  grid.set_taps(std::move(all));

  for (int64_t group = 0; group < g.groups; ++group) {
    const T* w = args.w.as<T>() + group * filters * taps * channels;
    pack_filters(
        stream, w, taps, channels, [&](int64_t tap) { return tap * channels; }, 1, taps * channels, strips,
        packed.data());
    const TapProduct<T> product{.source = args.x.as<T>(),
                                .images = g.n,
                                .source_h = g.h,
                                .source_w = g.w,
                                .source_c = g.c,
                                .source_first = group * channels,
                                .channels = channels,
                                .target = args.y.as<T>(),
                                .target_h = g.oh,
                                .target_w = g.ow,
                                .target_c = g.o,
                                .target_first = group * filters,
                                .packed = packed.data(),
                                .k_count = taps * channels,
                                .bias = args.bias ? static_cast<const T*>(args.bias) + group * filters : nullptr,
                                .extent = extent,
                                .strips = strips,
                                .zeros = zeros.data()};
    product.run(stream, grid);
  }
}

// Input pixel i gets contributions from output o with o * stride + k * dilation = i + pad: pixels of one phase,
// (i + pad) mod stride, share the taps with k * dilation of that phase.
struct Phase {
  int64_t first;                 // first pixel of the phase
  int64_t count;                 // pixels of it
  int64_t shift;                 // output coordinate of pixel number 0 for a tap that is zero strides away
  std::vector<int64_t> k, back;  // taps of the phase, and how many outputs they reach back
};

std::vector<Phase> phases(int64_t extent, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  std::vector<Phase> all;
  for (int64_t p = 0; p < stride; ++p) {
    Phase phase;
    phase.first = ((p - pad) % stride + stride) % stride;
    phase.count = phase.first < extent ? (extent - phase.first + stride - 1) / stride : 0;
    phase.shift = (phase.first + pad - p) / stride;
    for (int64_t k = 0; k < kernel; ++k) {
      if (k * dilation % stride != p) continue;
      phase.k.push_back(k);
      phase.back.push_back((k * dilation - p) / stride);
    }
    if (phase.count > 0) all.push_back(std::move(phase));
  }
  return all;
}

template <class T>
void grad_input(CpuStream& stream, const ConvGradInputArgs& args) {
  const ConvGeometry& g = args.g;
  const int64_t channels = g.c / g.groups, filters = g.o / g.groups, taps = g.kh * g.kw;
  const TileExtent extent = tile_extent(T{});
  const Strips strips(channels, extent);
  Scratch<T> packed(taps * filters * strips.padded_columns());
  Scratch<T> zeros(filters);
  std::fill_n(zeros.data(), filters, T{0});

  std::vector<PositionGrid> grids;
  for (const Phase& y : phases(g.h, g.kh, g.stride_h, g.pad_h, g.dilation_h)) {
    for (const Phase& x : phases(g.w, g.kw, g.stride_w, g.pad_w, g.dilation_w)) {
      PositionGrid grid{.rows = y.count,
                        .cols = x.count,
                        .step_y = g.stride_h,
                        .first_y = y.first,
                        .step_x = g.stride_w,
                        .first_x = x.first,
                        .scale_y = 1,
                        .shift_y = y.shift,
                        .scale_x = 1,
                        .shift_x = x.shift,
                        .taps = {}};
      std::vector<Tap> all;
      for (size_t i = 0; i < y.k.size(); ++i)
        for (size_t j = 0; j < x.k.size(); ++j)
          all.push_back({(y.k[i] * g.kw + x.k[j]) * filters, -y.back[i], -x.back[j]});
      grid.set_taps(std::move(all));
      grids.push_back(std::move(grid));
    }
  }

  for (int64_t group = 0; group < g.groups; ++group) {
    const T* w = args.w.as<T>() + group * filters * taps * channels;
    pack_filters(
        stream, w, taps, filters, [&](int64_t tap) { return tap * channels; }, taps * channels, 1, strips,
        packed.data());
    const TapProduct<T> product{.source = args.dy.as<T>(),
                                .images = g.n,
                                .source_h = g.oh,
                                .source_w = g.ow,
                                .source_c = g.o,
                                .source_first = group * filters,
                                .channels = filters,
                                .target = args.dx.as<T>(),
                                .target_h = g.h,
                                .target_w = g.w,
                                .target_c = g.c,
                                .target_first = group * channels,
                                .packed = packed.data(),
                                .k_count = taps * filters,
                                .bias = nullptr,
                                .extent = extent,
                                .strips = strips,
                                .zeros = zeros.data()};
    for (const PositionGrid& grid : grids) product.run(stream, grid);
  }
}

void check_gradient(const Tensor& dy, const Tensor& operand, const ConvGeometry& g) {
  check_float("conv2d_grad", dy);
  check_same_dtype("conv2d_grad", dy, operand);
  const Shape y{g.n, g.oh, g.ow, g.o};
  check(dy.shape() == y, "[conv2d_grad] the gradient must have the result's shape {}, got {}", to_string(y),
        to_string(dy.shape()));
}

}  // namespace

void conv2d(CpuStream& stream, const ConvArgs& args) {
  visit_float(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (is_depthwise(args.g)) depthwise_forward<T>(stream, args);
    else forward<T>(stream, args);
  });
}

void conv2d_grad_input(CpuStream& stream, const ConvGradInputArgs& args) {
  visit_float(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (is_depthwise(args.g)) depthwise_grad_input<T>(stream, args);
    else grad_input<T>(stream, args);
  });
}

ConvGeometry conv_geometry(const Shape& x, const Shape& w, const ConvOptions& o) {
  check(x.ndim() == 4 && w.ndim() == 4,
        "[conv2d] images (N, H, W, C) and filters (O, KH, KW, C / groups) expected, shapes are {} and {}", to_string(x),
        to_string(w));
  check(o.stride_h > 0 && o.stride_w > 0 && o.dilation_h > 0 && o.dilation_w > 0 && o.pad_h >= 0 && o.pad_w >= 0 &&
            o.groups > 0,
        "[conv2d] stride, dilation and groups must be positive and padding not negative");
  check(w.numel() > 0, "[conv2d] filters with elements expected, shape is {}", to_string(w));
  check(x[3] == w[3] * o.groups && w[0] % o.groups == 0,
        "[conv2d] channels must match in {} groups: images {} have {} channels, filters {} see {} each and are {}",
        o.groups, to_string(x), x[3], to_string(w), w[3], w[0]);
  ConvGeometry g{.n = x[0],
                 .h = x[1],
                 .w = x[2],
                 .c = x[3],
                 .o = w[0],
                 .kh = w[1],
                 .kw = w[2],
                 .oh = (x[1] + 2 * o.pad_h - o.dilation_h * (w[1] - 1) - 1) / o.stride_h + 1,
                 .ow = (x[2] + 2 * o.pad_w - o.dilation_w * (w[2] - 1) - 1) / o.stride_w + 1,
                 .stride_h = o.stride_h,
                 .stride_w = o.stride_w,
                 .pad_h = o.pad_h,
                 .pad_w = o.pad_w,
                 .dilation_h = o.dilation_h,
                 .dilation_w = o.dilation_w,
                 .groups = o.groups};
  check(x[1] + 2 * o.pad_h >= o.dilation_h * (w[1] - 1) + 1 && x[2] + 2 * o.pad_w >= o.dilation_w * (w[2] - 1) + 1,
        "[conv2d] filters {} are larger than the padded images {}", to_string(w), to_string(x));
  return g;
}

Tensor conv2d(const Tensor& x_in, const Tensor& w_in, const Tensor& bias_in, const ConvOptions& options) {
  check_float("conv2d", x_in);
  check_same_dtype("conv2d", x_in, w_in);
  const ConvGeometry g = conv_geometry(x_in.shape(), w_in.shape(), options);
  const Tensor x = x_in.to_contiguous(), w = w_in.to_contiguous();
  Tensor bias;
  if (bias_in.defined()) {
    check(bias_in.shape() == Shape{g.o} && bias_in.dtype() == x.dtype(),
          "[conv2d] bias {} of {} does not fit {} filters of {}", to_string(bias_in.shape()), name_of(bias_in.dtype()),
          g.o, name_of(x.dtype()));
    bias = bias_in.to_contiguous();
  }
  Tensor y = Tensor::empty({g.n, g.oh, g.ow, g.o}, x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    conv2d(stream, ConvArgs{g, in(x), in(w), out(y), bias.defined() ? bias.raw() : nullptr});
  });
  return y;
}

Tensor conv2d_grad_input(const Tensor& dy_in, const Tensor& w_in, const Shape& x_shape, const ConvOptions& options) {
  const ConvGeometry g = conv_geometry(x_shape, w_in.shape(), options);
  check_gradient(dy_in, w_in, g);
  const Tensor dy = dy_in.to_contiguous(), w = w_in.to_contiguous();
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  on(dy.device(), [&](auto& stream) { conv2d_grad_input(stream, ConvGradInputArgs{g, in(dy), in(w), out(dx)}); });
  return dx;
}

Tensor conv2d_grad_filter(const Tensor& dy_in, const Tensor& x_in, const Shape& w_shape, const ConvOptions& options) {
  const ConvGeometry g = conv_geometry(x_in.shape(), w_shape, options);
  check_gradient(dy_in, x_in, g);
  const Tensor dy = dy_in.to_contiguous(), x = x_in.to_contiguous();
  Tensor dw = Tensor::empty(w_shape, dy.dtype(), dy.device());
  on(dy.device(), [&](auto& stream) { conv2d_grad_filter(stream, ConvGradFilterArgs{g, in(dy), in(x), out(dw)}); });
  return dw;
}

}  // namespace elinvar
