// Replaces the libraries of fast products for the emulated GPU.
#include "tensor/fast_product.h"

#include "tensor/aligned_lines.h"
#include "tests/emulation/cuda.h"
#include "tests/emulation/rounded_products.h"

namespace elinvar {
namespace {

template <class Args>
void perform(const char* name, const Args& args, Precision precision) {
  emulation::perform(name, &args, sizeof args, [args, precision] { emulation::multiply_rounded(args, precision); });
}

}  // namespace

template <>
void fast_matmul(EmulatedStream& stream, const MatmulArgs& given, Precision precision) {
  with_aligned_lines(stream, given, [&](const MatmulArgs& args) { perform("fast_matmul", args, precision); });
}

template <>
void fast_conv2d(EmulatedStream&, const ConvArgs& args, Precision precision) {
  perform("fast_conv2d", args, precision);
}

template <>
void fast_conv2d_grad_input(EmulatedStream&, const ConvGradInputArgs& args, Precision precision) {
  perform("fast_conv2d_grad_input", args, precision);
}

template <>
void fast_conv2d_grad_filter(EmulatedStream&, const ConvGradFilterArgs& args, Precision precision) {
  perform("fast_conv2d_grad_filter", args, precision);
}

}  // namespace elinvar
