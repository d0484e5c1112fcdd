#pragma once
// The bodies of products on tensor cores (precision.h): the narrow place where the project meets the GPU's libraries.
// For CUDA matmul is cuBLASLt (cuda/fast_matmul.cpp), convolution cuDNN (cuda/fast_conv2d.cpp), attention our own
// (ops/attention_fast*.cu); the emulated GPU has a stand-in for the libraries (tests/emulation/fast_product.cpp).
//
// Arguments are those of the portable bodies, but for types: factors are bfloat16 or float32 as the precision says, and
// so are results of convolutions and attention; a matrix product's, and its bias, have the type MatmulArgs::result, and
// the statistics of attention are float32. There is at least one term.
//
// The same arguments give the same bits, in every run and process, with one model of GPU and one version of the
// libraries: algorithms are chosen by the libraries' heuristics, never by time, once for each shape; those that add in
// an order of their own choice are left out; and each call has a workspace of its own from the stream's allocator.
#include "tensor/ops/attention.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tensor/precision.h"

namespace elinvar {

template <class B>
void fast_matmul(GpuStream<B>&, const MatmulArgs&, Precision);

// Without bias.
template <class B>
void fast_conv2d(GpuStream<B>&, const ConvArgs&, Precision);
template <class B>
void fast_conv2d_grad_input(GpuStream<B>&, const ConvGradInputArgs&, Precision);
template <class B>
void fast_conv2d_grad_filter(GpuStream<B>&, const ConvGradFilterArgs&, Precision);

// bf16 alone, of heads of at most kMostFastHead elements. m is the maximum of a row's scores times log2(e); r is 1 / l
// as ever, and p = 2^(s log2(e) - m) r.
inline constexpr int64_t kMostFastHead = 128;
template <class B>
void fast_attention(GpuStream<B>&, const AttentionArgs&);
template <class B>
void fast_attention_backward(GpuStream<B>&, const AttentionBackwardArgs&);

}  // namespace elinvar
