// The filter gradient of a convolution: which product computes it.
#include <algorithm>

#include "tensor/op_check.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/conv2d_depthwise.h"
#include "tensor/ops/conv2d_few_channels.h"
#include "tensor/ops/conv2d_filter_product.h"
#include "tensor/ops/conv2d_filter_sums.h"

namespace elinvar {
namespace {

// Filters of one pixel without padding: the pixels under the outputs are, or are gathered as, the rows of a matrix.
// Packing dy as panels costs more than packing pixels as strips, so with more filters than channels the two swap roles
// and the result is transposed; with many channels transposing would cost more than that saves.
template <class T>
void grad_filter_one_pixel(CpuStream& stream, const ConvGradFilterArgs& args) {
  const ConvGeometry& g = args.g;
  const int64_t positions = g.n * g.oh * g.ow;
  const bool every = g.oh == g.h && g.ow == g.w;
  Scratch<T> met(every ? 0 : positions * g.c);
  const T* x = args.x.as<T>();
  if (!every) {
    stream.parallel_for(g.n * g.oh, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* row = x + (r / g.oh * g.h + r % g.oh * g.stride_h) * g.w * g.c;
        for (int64_t ow = 0; ow < g.ow; ++ow)
          std::copy_n(row + ow * g.stride_w * g.c, g.c, met.data() + (r * g.ow + ow) * g.c);
      }
    });
  }
  const bool swap = g.o > g.c && g.c <= 256;
  ConvGeometry met_g = g;
  met_g.h = g.oh, met_g.w = g.ow, met_g.stride_h = met_g.stride_w = 1;
  if (swap) std::swap(met_g.c, met_g.o);
  Scratch<ResultOf<T>> transposed(swap ? g.o * g.c : 0);
  const Exponents& e = args.exponents;
  const T *dy = args.dy.as<T>(), *pixels = every ? x : met.data();
  auto* const dw = args.dw.as<ResultOf<T>>();
  FilterProduct<T>(met_g, swap ? pixels : dy, swap ? dy : pixels, swap ? transposed.data() : dw, 0,
                   swap ? Exponents{e.columns, e.rows} : e)
      .run(stream);
  if (swap) transpose(stream, transposed.data(), g.c, g.o, dw);
}

bool one_pixel(const ConvGeometry& g) { return g.groups == 1 && g.kh * g.kw == 1 && g.pad_h + g.pad_w == 0; }

template <class T>
void grad_filter(CpuStream& stream, const ConvGradFilterArgs& args) {
  const ConvGeometry& g = args.g;
  for (int64_t group = 0; group < g.groups; ++group)
    FilterProduct<T>(g, args.dy.as<T>(), args.x.as<T>(), args.dw.as<ResultOf<T>>(), group, args.exponents).run(stream);
}

}  // namespace

void exact_conv2d_grad_filter(CpuStream& stream, const ConvGradFilterArgs& args) {
  if (one_pixel(args.g)) grad_filter_one_pixel<Pair>(stream, args);
  else if (few_channels_for_filters(args.g) && args.g.stride_h * args.g.stride_w > 1)  // otherwise rows of taps suffice
    few_channels_grad_filter<Pair>(stream, args);
  else grad_filter<Pair>(stream, args);
}

void conv2d_grad_filter(CpuStream& stream, const ConvGradFilterArgs& args) {
  visit_float(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (is_depthwise(args.g)) depthwise_grad_filter<T>(stream, args);
    else if (one_pixel(args.g)) grad_filter_one_pixel<T>(stream, args);
    else if (few_channels_for_filters(args.g)) few_channels_grad_filter<T>(stream, args);
    else grad_filter<T>(stream, args);
  });
}

}  // namespace elinvar
