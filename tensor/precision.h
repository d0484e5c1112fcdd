#pragma once
// How precisely products are computed: matmul, convolutions, attention. Portable products have the bits of NUMERICS.md
// on every device. The others ("Fast numerics" there) run on a GPU's tensor cores, sum in float32, and have the bits of
// one model of GPU and one version of its libraries:
//   tf32   of float32 factors 10 bits of the fraction take part
//   bf16   factors are rounded to bfloat16
// What lies between products of precision bf16, activations and their gradients, is stored as bfloat16, too. An op that
// is given some computes what it would of the widened values, in float32, and rounds a result that is bfloat16 once, to
// nearest even; on GPUs alone. Parameters, their gradients, sums, statistics, losses and what the optimiser keeps are
// float32.
#include <cstdint>
#include <string>
#include <type_traits>

#include "tensor/tensor.h"

namespace elinvar {

enum class Precision : uint8_t { portable, tf32, bf16 };
constexpr Precision last_of(Precision) { return Precision::bf16; }  // trace.h

constexpr const char* name_of(Precision precision) {
  constexpr const char* kNames[] = {"portable", "tf32", "bf16"};
  return kNames[static_cast<int>(precision)];
}

// The type that ops compute in where their operands have type t, and that of parameters and statistics beside them.
constexpr DType computed_in(DType t) { return t == DType::bf16 ? DType::f32 : t; }

// A tensor as a factor of products of that precision: rounded to bfloat16 for bf16, unless it is; else itself. Who uses
// a factor in several products has it rounded once. Throws UsageError, naming `op`, for a type or a device that the
// precision does not have.
Tensor factor(const char* op, const Tensor& t, Precision precision);

// What computes fast products on a device, "cuBLASLt 130100, cuDNN 91900", or what is missing for them; the other is
// "".
struct FastProducts {
  std::string by = {}, missing = {};
};
FastProducts fast_products(Device device);

[[noreturn]] void refuse_fast_products();

// Calls f with the stream of a GPU. UsageError for the CPU.
template <class F>
void on_tensor_cores(Device device, F&& f) {
  on(device, [&](auto& stream) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(stream)>, CpuStream>) refuse_fast_products();
    else f(stream);
  });
}

}  // namespace elinvar
