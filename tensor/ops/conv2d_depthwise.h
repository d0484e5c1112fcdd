#pragma once
// Convolutions in which each filter sees one channel. They are chains over taps, vectorised over channels, not matrix
// products. The order is that of any convolution (NUMERICS.md, rule 10), so both paths give the same bits.
#include "tensor/numerics.h"
#include "tensor/ops/conv2d.h"

namespace elinvar {

inline constexpr int kPositionsAtOnce = 8;  // by a CPU, in registers

inline bool is_depthwise(const ConvGeometry& g) {
  return g.groups > 1 && g.groups == g.c && g.o == g.c && g.kh * g.kw <= kChunk;
}

template <class T>
void depthwise_forward(CpuStream& stream, const ConvArgs& args);
template <class T>
void depthwise_grad_input(CpuStream& stream, const ConvGradInputArgs& args);
template <class T>
void depthwise_grad_filter(CpuStream& stream, const ConvGradFilterArgs& args);

template <class B>
void depthwise_forward(GpuStream<B>& stream, const ConvArgs& args);
template <class B>
void depthwise_grad_input(GpuStream<B>& stream, const ConvGradInputArgs& args);
template <class B>
void depthwise_grad_filter(GpuStream<B>& stream, const ConvGradFilterArgs& args);

}  // namespace elinvar
