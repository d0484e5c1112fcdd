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
