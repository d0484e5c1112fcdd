#pragma once
// The instruction set that CPU kernels use. All give the same bits; tests limit the set to prove it.
#include <string_view>
#include <vector>

namespace elinvar {

enum class Isa { scalar, avx2, avx512 };

const char* name_of(Isa isa);
Isa parse_isa(std::string_view name);  // "auto" is the best available; throws UsageError on an unknown or absent one

std::vector<Isa> available_isas();  // on this machine, slowest first
Isa current_isa();
void set_isa(Isa isa);  // for all threads; call it while no kernel runs

}  // namespace elinvar

// The version of a kernel, which HWY_EXPORT has named, for elements of a type (visit_element in simd-inl.h).
#define ELINVAR_KERNEL(kernel, dtype) \
  ((dtype) == DType::f32 ? HWY_DYNAMIC_DISPATCH(kernel) : HWY_STATIC_DISPATCH(kernel))
