#pragma once
// The precision of products: matmul, convolutions, attention. Portable products have the bits of NUMERICS.md on every
// device, and so have exact ones, whose factors are rounded to 14 bits (quantized.h). The others ("Fast numerics"
// there) run on a GPU's tensor cores, sum in float32, and have the bits of one model of GPU and one version of its
// libraries:
//   tf32   10 explicit bits of fraction of float32 factors take part
//   bf16   factors are rounded to bfloat16
// With bf16, activations and their gradients between products are stored as bfloat16 too. An op on bfloat16, which only
// GPUs have, computes on the widened values in float32 and rounds a bfloat16 result once, to nearest even. Parameters,
// their gradients, sums, statistics, losses and the optimiser's state are float32.
#include <cstdint>
#include <string>
#include <type_traits>

#include "tensor/tensor.h"

namespace elinvar {

enum class Precision : uint8_t { portable, tf32, bf16, exact };
constexpr Precision last_of(Precision) { return Precision::exact; }  // trace.h

constexpr const char* name_of(Precision precision) {
  constexpr const char* kNames[] = {"portable", "tf32", "bf16", "exact"};
  return kNames[static_cast<int>(precision)];
}

// The type in which ops compute on operands of type t; their parameters and statistics have it too.
constexpr DType computed_in(DType t) { return t == DType::bf16 ? DType::f32 : t; }

// Returns a tensor as a factor of products of that precision: for bf16 rounded to bfloat16 if necessary, else
// unchanged. For a factor of several products, call it once. Throws UsageError, naming `op`, for a type or a device
// that the precision does not support.
Tensor factor(const char* op, const Tensor& t, Precision precision);

// `by` names the libraries that compute fast products on a device ("cuBLASLt 130100, cuDNN 91900"), `missing` what is
// needed for such products; one of the two is "".
struct FastProducts {
  std::string by = {}, missing = {};
};
FastProducts fast_products(Device device);
FastProducts fast_products_of_cuda(int index);

[[noreturn]] void refuse_fast_products();

// Calls f with the stream of a GPU. Throws UsageError for the CPU.
template <class F>
void on_tensor_cores(Device device, F&& f) {
  on(device, [&](auto& stream) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(stream)>, CpuStream>) refuse_fast_products();
    else f(stream);
  });
}

}  // namespace elinvar
