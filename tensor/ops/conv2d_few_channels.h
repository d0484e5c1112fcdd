#pragma once
// Gradients of convolutions of images with few channels, such as a first layer's. Channels do not fill a vector, so
// vectors hold pixels of a row, or filters. The order is that of any convolution (NUMERICS.md, rule 10), so the bits
// are the same.
#include "tensor/ops/conv2d.h"

namespace elinvar {

// True if at least half of a vector of channels is empty, and a row has a vector of pixels for each phase of the
// stride.
inline bool few_channels_for_inputs(const ConvGeometry& g) {
  return g.groups == 1 && g.c <= 8 && g.w >= 16 * g.stride_w;
}
inline bool few_channels_for_filters(const ConvGeometry& g) { return g.groups == 1 && g.c < 16; }

template <class T>
void few_channels_grad_input(CpuStream& stream, const ConvGradInputArgs& args);
template <class T>
void few_channels_grad_filter(CpuStream& stream, const ConvGradFilterArgs& args);

}  // namespace elinvar
