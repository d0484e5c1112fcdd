#pragma once
// Products on tensor cores by the CPU, in place of NVIDIA's libraries: factors are rounded to the precision and
// multiplied by the portable kernels, so that tests know every bit of a result. Operands are in the host's memory.
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tensor/precision.h"

namespace elinvar::emulation {

void multiply_rounded(const MatmulArgs& args, Precision precision);
void multiply_rounded(const ConvArgs& args, Precision precision);
void multiply_rounded(const ConvGradInputArgs& args, Precision precision);
void multiply_rounded(const ConvGradFilterArgs& args, Precision precision);

}  // namespace elinvar::emulation
