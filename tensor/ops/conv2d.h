#pragma once
// Convolution of images (N, H, W, C) with filters (O, KH, KW, C / groups), and its two gradients: three implicit
// matrix products (NUMERICS.md, rules 8 and 10). Nominal k is (kh, kw, c), (kh, kw, o) and (n, oh, ow); taps that
// fall into the padding or between strides are zero terms, skipped or multiplied (rule 7). Exact ones follow
// "Exact numerics" there. The other precisions run on a GPU's tensor cores.
#include "tensor/fields.h"
#include "tensor/precision.h"
#include "tensor/quantized.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

struct ConvGeometry {
  int64_t n, h, w, c;  // input
  int64_t o, kh, kw;   // filters; each sees c / groups channels
  int64_t oh, ow;      // output
  int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
};

// In exact products factors are pairs, of channels or of images and filters (tensor/quantized.h), and the geometry
// counts pairs. The exponents of rows and columns belong to images and filters, to images and channels, and to filters
// and channels.
struct ConvArgs {
  ConvGeometry g;
  In x, w;
  Out y;
  const void* bias = nullptr;  // (O), added with a rounding of its own
  Exponents exponents = {};
};
void conv2d(CpuStream&, const ConvArgs&);
void exact_conv2d(CpuStream&, const ConvArgs&);
template <class B>
void conv2d(GpuStream<B>&, const ConvArgs&);
template <class B>
void exact_conv2d(GpuStream<B>&, const ConvArgs&);

struct ConvGradInputArgs {
  ConvGeometry g;
  In dy, w;
  Out dx;
  Exponents exponents = {};
  bool adds = false;  // to dx; exact products on CPUs only
};
void conv2d_grad_input(CpuStream&, const ConvGradInputArgs&);
void exact_conv2d_grad_input(CpuStream&, const ConvGradInputArgs&);
template <class B>
void conv2d_grad_input(GpuStream<B>&, const ConvGradInputArgs&);
template <class B>
void exact_conv2d_grad_input(GpuStream<B>&, const ConvGradInputArgs&);

struct ConvGradFilterArgs {
  ConvGeometry g;
  In dy, x;
  Out dw;
  Exponents exponents = {};
};
void conv2d_grad_filter(CpuStream&, const ConvGradFilterArgs&);
void exact_conv2d_grad_filter(CpuStream&, const ConvGradFilterArgs&);
template <class B>
void conv2d_grad_filter(GpuStream<B>&, const ConvGradFilterArgs&);
template <class B>
void exact_conv2d_grad_filter(GpuStream<B>&, const ConvGradFilterArgs&);

struct ConvOptions {
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1, groups = 1;
  ELINVAR_FIELDS(stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups)
};

// Checks shapes and returns the geometry with the output's extents; throws UsageError naming both shapes.
ConvGeometry conv_geometry(const Shape& x, const Shape& w, const ConvOptions& options);

// With precision bf16, factors may be bfloat16, or are rounded to it; the result is rounded to bfloat16, and once more
// after a float32 bias is added. The gradient of the filter is float32 with bfloat16's bits.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& options,
              Precision precision = Precision::portable);
Tensor conv2d_grad_input(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvOptions& options,
                         Precision precision = Precision::portable);
Tensor conv2d_grad_filter(const Tensor& dy, const Tensor& x, const Shape& w_shape, const ConvOptions& options,
                          Precision precision = Precision::portable);

// Exact products (tensor/quantized.h) of images (N, H W, C), filters (O, KH KW, C / groups) and gradients (N, OH OW,
// O), in float32. The shapes are those of the float32 images and filters. x and w are pairs of channels in the first;
// dy of channels and w of rows in the second; dy and x of rows in the third. With `sum`, of the images' shape, the
// second returns sum + dx, with the bits of a separate addition. It overwrites a sum that is moved in as the only
// handle on its elements.
Tensor exact_conv2d(const Quantized& x, const Quantized& w, const Tensor& bias, const Shape& x_shape,
                    const Shape& w_shape, const ConvOptions& options);
Tensor exact_conv2d_grad_input(const Quantized& dy, const Quantized& w, const Shape& x_shape, const Shape& w_shape,
                               const ConvOptions& options, Tensor sum = {});
Tensor exact_conv2d_grad_filter(const Quantized& dy, const Quantized& x, const Shape& x_shape, const Shape& w_shape,
                                const ConvOptions& options);

// Whether a convolution has exact products: pairs must not cross groups, and depthwise ones are portable.
bool has_exact_products(const ConvGeometry& g);

}  // namespace elinvar
