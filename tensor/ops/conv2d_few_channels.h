#pragma once
// Gradients of convolutions of images with few channels, as a first layer's are: these fill no vector, but the pixels
// of a row do, or the filters. The same order as in any convolution (NUMERICS.md, rule 10), so the bits are the same.
#include "tensor/ops/conv2d.h"

namespace elinvar {

// So few that half of a vector of them would be empty, and rows with a vector of pixels for each phase of the stride.
inline bool few_channels_for_inputs(const ConvGeometry& g) {
  return g.groups == 1 && g.c <= 8 && g.w >= 16 * g.stride_w;
}
inline bool few_channels_for_filters(const ConvGeometry& g) { return g.groups == 1 && g.c < 16; }

template <class T>
void few_channels_grad_input(CpuStream& stream, const ConvGradInputArgs& args);
template <class T>
void few_channels_grad_filter(CpuStream& stream, const ConvGradFilterArgs& args);

}  // namespace elinvar
