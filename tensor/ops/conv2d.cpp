#include "tensor/ops/conv2d.h"

#include <utility>

#include "tensor/fast_product.h"
#include "tensor/op_check.h"
#include "tensor/ops/conv2d_depthwise.h"
#include "tensor/ops/conv2d_few_channels.h"
#include "tensor/ops/conv2d_rows.h"
#include "tensor/ops/pointwise.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

// target = source times the filters of one group. Element (tap, source channel, target channel) of the filters is at
// w[tap * tap_step + source channel * channel_step + target channel * target_step].
template <class T>
struct GroupProduct {
  ImageChannels<const T> source;
  ImageChannels<ResultOf<T>> target;
  const T* w;
  int64_t tap_step, channel_step, target_step;
  Epilogue<T> epilogue;
  const int32_t* image_exponents;

  void run(CpuStream& stream, const std::vector<Stretch>& ys, const std::vector<Stretch>& xs, int64_t kh, int64_t kw,
           T* packed) const {
    const Strips strips(target.channels, tile_extent(T{}, target.channels));
    const int64_t taps = kh * kw, k_count = taps * source.channels;
    stream.parallel_for(strips.count * taps, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t s = item / taps, tap = item % taps;
        pack_strip(w + tap * tap_step + strips.begin(s) * target_step, channel_step, target_step, source.channels,
                   strips.exist(s), strips.width(s),
                   packed + k_count * strips.begin(s) + tap * source.channels * strips.width(s));
      }
    });
    const std::vector<PositionRows<T>> sources = position_rows(source, target, ys, xs, kw, image_exponents);
    Product<T>(packed, strips, 0, k_count, k_count, epilogue).run(stream, std::span<const PositionRows<T>>(sources));
  }
};

// Returns the epilogue of a group whose first column is `column`.
template <class T>
Epilogue<T> epilogue_of(const void* bias, const Exponents& exponents, int64_t column, bool adds = false) {
  Epilogue<T> epilogue{.bias = static_cast<const ResultOf<T>*>(bias)};
  if constexpr (std::is_same_v<T, Pair>) epilogue.exponents = exponents.columns, epilogue.add_to_c = adds;
  return epilogue.at(column);
}

// Returns the number of elements of the packed filters of one group.
template <class T>
int64_t packed_size(int64_t k_count, int64_t columns) {
  return k_count * Strips(columns, tile_extent(T{}, columns)).padded_columns();
}

template <class T>
void forward(CpuStream& stream, const ConvArgs& args) {
  const ConvGeometry& g = args.g;
  const int64_t channels = g.c / g.groups, filters = g.o / g.groups, taps = g.kh * g.kw;
  const auto ys = forward_axis(vertical(g)), xs = forward_axis(horizontal(g));
  Scratch<T> packed(packed_size<T>(taps * channels, filters));
  for (int64_t group = 0; group < g.groups; ++group)
    GroupProduct<T>{.source = {args.x.as<T>(), g.n, g.h, g.w, g.c, group * channels, channels},
                    .target = {args.y.as<ResultOf<T>>(), g.n, g.oh, g.ow, g.o, group * filters, filters},
                    .w = args.w.as<T>() + group * filters * taps * channels,
                    .tap_step = channels,
                    .channel_step = 1,
                    .target_step = taps * channels,
                    .epilogue = epilogue_of<T>(args.bias, args.exponents, group * filters),
                    .image_exponents = args.exponents.rows}
        .run(stream, ys, xs, g.kh, g.kw, packed.data());
}

template <class T>
void grad_input(CpuStream& stream, const ConvGradInputArgs& args) {
  const ConvGeometry& g = args.g;
  const int64_t channels = g.c / g.groups, filters = g.o / g.groups, taps = g.kh * g.kw;
  const auto ys = backward_axis(vertical(g)), xs = backward_axis(horizontal(g));
  Scratch<T> packed(packed_size<T>(taps * filters, channels));
  for (int64_t group = 0; group < g.groups; ++group)
    GroupProduct<T>{.source = {args.dy.as<T>(), g.n, g.oh, g.ow, g.o, group * filters, filters},
                    .target = {args.dx.as<ResultOf<T>>(), g.n, g.h, g.w, g.c, group * channels, channels},
                    .w = args.w.as<T>() + group * filters * taps * channels,
                    .tap_step = channels,
                    .channel_step = taps * channels,
                    .target_step = 1,
                    .epilogue = epilogue_of<T>(nullptr, args.exponents, group * channels, args.adds),
                    .image_exponents = args.exponents.rows}
        .run(stream, ys, xs, g.kh, g.kw, packed.data());
}

void check_gradient(const Tensor& dy, const Tensor& operand, const ConvGeometry& g) {
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
    else if (few_channels_for_inputs(args.g)) few_channels_grad_input<T>(stream, args);
    else grad_input<T>(stream, args);
  });
}

void exact_conv2d(CpuStream& stream, const ConvArgs& args) { forward<Pair>(stream, args); }
void exact_conv2d_grad_input(CpuStream& stream, const ConvGradInputArgs& args) { grad_input<Pair>(stream, args); }

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

namespace {

// Runs a product on tensor cores; `body` writes the result to its argument.
template <class F>
Tensor fast(const Shape& shape, const Tensor& like, F body) {
  Tensor result = Tensor::empty(shape, like.dtype(), like.device());
  if (result.numel() > 0) on_tensor_cores(like.device(), [&](auto& stream) { body(stream, out(result)); });
  return result;
}

Tensor conv2d_of(const Tensor& x_in, const Tensor& w_in, const Tensor& bias_in, const ConvOptions& options,
                 Precision precision) {
  const Tensor x = factor("conv2d", x_in, precision).to_contiguous(),
               w = factor("conv2d", w_in, precision).to_contiguous();
  check_same_dtype("conv2d", x, w);
  const ConvGeometry g = conv_geometry(x.shape(), w.shape(), options);
  if (precision != Precision::portable) {
    Tensor sum = fast({g.n, g.oh, g.ow, g.o}, x, [&](auto& stream, Out to) {
      fast_conv2d(stream, ConvArgs{g, in(x), in(w), to}, precision);
    });
    if (bias_in.defined()) add_into(sum, operand("conv2d", "the bias", bias_in, {g.o}, sum));
    return sum;
  }
  const Tensor bias = bias_in.defined() ? operand("conv2d", "the bias", bias_in, {g.o}, x) : bias_in;
  Tensor y = Tensor::empty({g.n, g.oh, g.ow, g.o}, x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    conv2d(stream, ConvArgs{g, in(x), in(w), out(y), bias.defined() ? bias.raw() : nullptr});
  });
  return y;
}

Tensor conv2d_grad_input_of(const Tensor& dy_in, const Tensor& w_in, const Shape& x_shape, const ConvOptions& options,
                            Precision precision) {
  const ConvGeometry g = conv_geometry(x_shape, w_in.shape(), options);
  const Tensor dy = factor("conv2d_grad", dy_in, precision).to_contiguous(),
               w = factor("conv2d_grad", w_in, precision).to_contiguous();
  check_gradient(dy, w, g);
  if (precision != Precision::portable)
    return fast(x_shape, dy, [&](auto& stream, Out to) {
      fast_conv2d_grad_input(stream, ConvGradInputArgs{g, in(dy), in(w), to}, precision);
    });
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  on(dy.device(), [&](auto& stream) { conv2d_grad_input(stream, ConvGradInputArgs{g, in(dy), in(w), out(dx)}); });
  return dx;
}

Tensor conv2d_grad_filter_of(const Tensor& dy_in, const Tensor& x_in, const Shape& w_shape, const ConvOptions& options,
                             Precision precision) {
  const ConvGeometry g = conv_geometry(x_in.shape(), w_shape, options);
  const Tensor dy = factor("conv2d_grad", dy_in, precision).to_contiguous(),
               x = factor("conv2d_grad", x_in, precision).to_contiguous();
  check_gradient(dy, x, g);
  if (precision != Precision::portable)
    return fast(w_shape, dy,
                [&](auto& stream, Out to) {
                  fast_conv2d_grad_filter(stream, ConvGradFilterArgs{g, in(dy), in(x), to}, precision);
                })
        .to(DType::f32);
  Tensor dw = Tensor::empty(w_shape, dy.dtype(), dy.device());
  on(dy.device(), [&](auto& stream) { conv2d_grad_filter(stream, ConvGradFilterArgs{g, in(dy), in(x), out(dw)}); });
  return dw;
}

constexpr int64_t half(int64_t n) { return (n + 1) / 2; }

// Returns the geometry of an exact product after its checks.
ConvGeometry exact_geometry(const char* op, const Shape& x, const Shape& w, const ConvOptions& options) {
  const ConvGeometry g = conv_geometry(x, w, options);
  check(has_exact_products(g), "[{}] groups with even numbers of channels and filters expected, shapes are {} and {}",
        op, to_string(x), to_string(w));
  return g;
}

// Checks a factor's pairs and returns it for a kernel.
In pairs_in(const char* op, const char* name, const Quantized& t, Pairs pairs, const Shape& shape) {
  check(t.pairs == pairs && t.q.dtype() == DType::i32 && t.q.shape() == shape && t.q.contiguous(),
        "[{}] {} must be pairs of {} of shape {}, got {}", op, name, pairs == Pairs::rows ? "rows" : "channels",
        to_string(shape), to_string(t.q.shape()));
  return {t.q.raw(), DType::i32};
}

Exponents exponents(const Tensor& rows, const Tensor& columns) {
  return {static_cast<const int32_t*>(rows.raw()), static_cast<const int32_t*>(columns.raw())};
}

Tensor exact_conv2d_of(const Quantized& x, const Quantized& w, const Tensor& bias_in, const Shape& x_shape,
                       const Shape& w_shape, const ConvOptions& options) {
  constexpr const char* kName = "exact_conv2d";
  ConvGeometry g = exact_geometry(kName, x_shape, w_shape, options);
  check_same_device(kName, x.q, w.q);
  Tensor y = Tensor::empty({g.n, g.oh, g.ow, g.o}, DType::f32, x.q.device());
  const Tensor bias = bias_in.defined() ? operand(kName, "the bias", bias_in, {g.o}, y) : bias_in;
  const In images = pairs_in(kName, "images", x, Pairs::channels, {g.n, g.h * g.w, half(g.c)}),
           filters = pairs_in(kName, "filters", w, Pairs::channels, {g.o, g.kh * g.kw, half(g.c / g.groups)});
  g.c = half(g.c);
  const ConvArgs args{g, images, filters, out(y), bias.defined() ? bias.raw() : nullptr, exponents(x.rows, w.rows)};
  on(y.device(), [&](auto& stream) { exact_conv2d(stream, args); });
  return y;
}

Tensor exact_conv2d_grad_input_of(const Quantized& dy, const Quantized& w, const Shape& x_shape, const Shape& w_shape,
                                  const ConvOptions& options, Tensor sum) {
  constexpr const char* kName = "exact_conv2d_grad_input";
  ConvGeometry g = exact_geometry(kName, x_shape, w_shape, options);
  check_same_device(kName, dy.q, w.q);
  const bool adds = sum.defined() && sum.device() == Device{} && sum.unique() && sum.contiguous();
  if (sum.defined()) {
    check(sum.shape() == x_shape && sum.dtype() == DType::f32, "[{}] a float32 sum of shape {} expected, got {} of {}",
          kName, to_string(x_shape), name_of(sum.dtype()), to_string(sum.shape()));
    check_same_device(kName, sum, dy.q);
  }
  Tensor dx = adds ? std::exchange(sum, {}) : Tensor::empty(x_shape, DType::f32, dy.q.device());
  const In gradients = pairs_in(kName, "gradients", dy, Pairs::channels, {g.n, g.oh * g.ow, half(g.o)}),
           filters = pairs_in(kName, "filters", w, Pairs::rows, {half(g.o), g.kh * g.kw, g.c / g.groups});
  g.o = half(g.o);
  const ConvGradInputArgs args{g, gradients, filters, out(dx), exponents(dy.rows, w.channels), adds};
  on(dx.device(), [&](auto& stream) { exact_conv2d_grad_input(stream, args); });
  return sum.defined() ? add_to(std::move(sum), dx) : dx;
}

Tensor exact_conv2d_grad_filter_of(const Quantized& dy, const Quantized& x, const Shape& x_shape, const Shape& w_shape,
                                   const ConvOptions& options) {
  constexpr const char* kName = "exact_conv2d_grad_filter";
  ConvGeometry g = exact_geometry(kName, x_shape, w_shape, options);
  check_same_device(kName, dy.q, x.q);
  Tensor dw = Tensor::empty(w_shape, DType::f32, dy.q.device());
  g.n = half(g.n);
  check(2 * g.n * g.oh * g.ow <= kMostTerms, "[{}] sums of at most {} terms are exact, got {}; use smaller batches",
        kName, kMostTerms, 2 * g.n * g.oh * g.ow);
  const In gradients = pairs_in(kName, "gradients", dy, Pairs::rows, {g.n, g.oh * g.ow, g.o}),
           images = pairs_in(kName, "images", x, Pairs::rows, {g.n, g.h * g.w, g.c});
  const ConvGradFilterArgs args{g, gradients, images, out(dw), exponents(dy.channels, x.channels)};
  on(dw.device(), [&](auto& stream) { exact_conv2d_grad_filter(stream, args); });
  return dw;
}

// Each element of the output is a sum over a filter; taps in the padding count as well.
double flop_of(const Shape& x, const Shape& w, const ConvOptions& options) {
  const ConvGeometry g = conv_geometry(x, w, options);
  return 2.0 * static_cast<double>(g.n * g.oh * g.ow * g.o) * static_cast<double>(g.kh * g.kw * (g.c / g.groups));
}

const Op kConv2d(
    "conv2d(x, w, bias, options, precision) -> y", conv2d_of,
    +[](const Tensor& x, const Tensor& w, const Tensor&, const ConvOptions& options, Precision) {
      return flop_of(x.shape(), w.shape(), options);
    });
const Op kGradInput(
    "conv2d_grad_input(dy, w, x_shape, options, precision) -> dx", conv2d_grad_input_of,
    +[](const Tensor&, const Tensor& w, const Shape& x, const ConvOptions& options, Precision) {
      return flop_of(x, w.shape(), options);
    });
const Op kGradFilter(
    "conv2d_grad_filter(dy, x, w_shape, options, precision) -> dw", conv2d_grad_filter_of,
    +[](const Tensor&, const Tensor& x, const Shape& w, const ConvOptions& options, Precision) {
      return flop_of(x.shape(), w, options);
    });

const Op kExactConv2d(
    "exact_conv2d(x, w, bias, x_shape, w_shape, options) -> y", exact_conv2d_of,
    +[](const Quantized&, const Quantized&, const Tensor&, const Shape& x, const Shape& w, const ConvOptions& options) {
      return flop_of(x, w, options);
    });
const Op kExactGradInput(
    "exact_conv2d_grad_input(dy, w, x_shape, w_shape, options, sum) -> dx", exact_conv2d_grad_input_of,
    +[](const Quantized&, const Quantized&, const Shape& x, const Shape& w, const ConvOptions& options, Tensor) {
      return flop_of(x, w, options);
    });
const Op kExactGradFilter(
    "exact_conv2d_grad_filter(dy, x, x_shape, w_shape, options) -> dw", exact_conv2d_grad_filter_of,
    +[](const Quantized&, const Quantized&, const Shape& x, const Shape& w, const ConvOptions& options) {
      return flop_of(x, w, options);
    });

}  // namespace

bool has_exact_products(const ConvGeometry& g) {
  return !is_depthwise(g) && (g.groups == 1 || (g.c / g.groups % 2 == 0 && g.o / g.groups % 2 == 0));
}

Tensor exact_conv2d(const Quantized& x, const Quantized& w, const Tensor& bias, const Shape& x_shape,
                    const Shape& w_shape, const ConvOptions& options) {
  return kExactConv2d(x, w, bias, x_shape, w_shape, options);
}

Tensor exact_conv2d_grad_input(const Quantized& dy, const Quantized& w, const Shape& x_shape, const Shape& w_shape,
                               const ConvOptions& options, Tensor sum) {
  return kExactGradInput(dy, w, x_shape, w_shape, options, std::move(sum));
}

Tensor exact_conv2d_grad_filter(const Quantized& dy, const Quantized& x, const Shape& x_shape, const Shape& w_shape,
                                const ConvOptions& options) {
  return kExactGradFilter(dy, x, x_shape, w_shape, options);
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& options, Precision precision) {
  return kConv2d(x, w, bias, options, precision);
}

Tensor conv2d_grad_input(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvOptions& options,
                         Precision precision) {
  return kGradInput(dy, w, x_shape, options, precision);
}

Tensor conv2d_grad_filter(const Tensor& dy, const Tensor& x, const Shape& w_shape, const ConvOptions& options,
                          Precision precision) {
  return kGradFilter(dy, x, w_shape, options, precision);
}

}  // namespace elinvar
