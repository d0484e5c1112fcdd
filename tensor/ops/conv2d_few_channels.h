#pragma once
// The input gradient of a convolution of images with few channels, as a first layer's are: they fill no vector, but the
// pixels of a row do. The same order as in any convolution (NUMERICS.md, rule 10), so the two paths give the same bits.
#include "tensor/ops/conv2d.h"

namespace elinvar {

// Few channels, and rows of pixels that fill vectors.
bool has_few_channels(const ConvGeometry& g);

template <class T>
void few_channels_grad_input(CpuStream& stream, const ConvGradInputArgs& args);

}  // namespace elinvar
