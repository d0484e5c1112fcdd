// Replaces cuBLASLt and cuDNN, which need a GPU.
#include "tensor/fast_product.h"

#include <cuda_runtime.h>

#include "tensor/aligned_lines.h"
#include "tensor/gpu_stream.h"
#include "tests/emulation/rounded_products.h"
#include "tests/ptx/runtime/queue.h"

namespace elinvar {
namespace {

template <class Args>
void perform(CudaStream& stream, const Args& args, Precision precision) {
  ptx::perform(static_cast<cudaStream_t>(stream.handle()),
               [args, precision] { emulation::multiply_rounded(args, precision); });
}

}  // namespace

FastProducts fast_products_of_cuda(int) { return {.by = "stand-ins"}; }

template <>
void fast_matmul(CudaStream& stream, const MatmulArgs& given, Precision precision) {
  with_aligned_lines(stream, given, [&](const MatmulArgs& args) { perform(stream, args, precision); });
}

template <>
void fast_conv2d(CudaStream& stream, const ConvArgs& args, Precision precision) {
  perform(stream, args, precision);
}

template <>
void fast_conv2d_grad_input(CudaStream& stream, const ConvGradInputArgs& args, Precision precision) {
  perform(stream, args, precision);
}

template <>
void fast_conv2d_grad_filter(CudaStream& stream, const ConvGradFilterArgs& args, Precision precision) {
  perform(stream, args, precision);
}

}  // namespace elinvar
