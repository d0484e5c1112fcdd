// Fast products in builds without the headers of cuBLASLt and cuDNN: there are none.
#include "tensor/base/check.h"
#include "tensor/fast_product.h"

namespace elinvar {
namespace {

constexpr const char* kMissing =
    "this build has no fast products: it found no headers of cuBLASLt and cuDNN (cublasLt.h, cudnn.h) beside the "
    "toolkit";

}  // namespace

FastProducts fast_products_of_cuda(int /*index*/) { return {.missing = kMissing}; }

template <>
void fast_matmul(CudaStream&, const MatmulArgs&, Precision) {
  fail("[matmul] {}", kMissing);
}
template <>
void fast_conv2d(CudaStream&, const ConvArgs&, Precision) {
  fail("[conv2d] {}", kMissing);
}
template <>
void fast_conv2d_grad_input(CudaStream&, const ConvGradInputArgs&, Precision) {
  fail("[conv2d_grad] {}", kMissing);
}
template <>
void fast_conv2d_grad_filter(CudaStream&, const ConvGradFilterArgs&, Precision) {
  fail("[conv2d_grad] {}", kMissing);
}

}  // namespace elinvar
