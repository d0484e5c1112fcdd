#pragma once
// The bodies of products on tensor cores (precision.h): the only interface to the GPU's libraries. On CUDA, matmul uses
// cuBLASLt (cuda/fast_matmul.cpp), convolution uses cuDNN (cuda/fast_conv2d.cpp), and attention uses our own kernels
// (ops/attention_fast*.cu). The emulated GPU has a replacement for the libraries (tests/emulation/fast_product.cpp).
//
// Arguments are those of the portable bodies except for types. Factors and the results of convolutions and attention
// are bfloat16 or float32, as the precision says. The result of a matrix product and its bias have the type
// MatmulArgs::result; the statistics of attention are float32. Every sum has at least one term.
//
// The same arguments give the same bits, in every run and process, with one model of GPU and one version of the
// libraries. The libraries' heuristics choose an algorithm once for each shape, never by timing; algorithms that add in
// an order of their own choice are excluded; and each call has its own workspace from the stream's allocator.
#include "tensor/ops/attention.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tensor/precision.h"

namespace elinvar {

template <class B>
void fast_matmul(GpuStream<B>&, const MatmulArgs&, Precision);

// Adds no bias.
template <class B>
void fast_conv2d(GpuStream<B>&, const ConvArgs&, Precision);
template <class B>
void fast_conv2d_grad_input(GpuStream<B>&, const ConvGradInputArgs&, Precision);
template <class B>
void fast_conv2d_grad_filter(GpuStream<B>&, const ConvGradFilterArgs&, Precision);

// Takes bf16 only, with heads of at most kMostFastHead elements. m is the maximum of a row's scores times log2(e), r is
// 1 / l as in the portable body, and p = 2^(s log2(e) - m) r.
inline constexpr int64_t kMostFastHead = 128;
template <class B>
void fast_attention(GpuStream<B>&, const AttentionArgs&);
template <class B>
void fast_attention_backward(GpuStream<B>&, const AttentionBackwardArgs&);

}  // namespace elinvar
