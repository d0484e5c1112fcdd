#pragma once
// The micro-kernel of exact products on CPUs (tensor/quantized.h): tiles of pairs, for which tensor/tile.h has the
// types. A sum is kept in two int32 numbers, of which the low one is carried into the high one before it can overflow:
// every kPairsPerCarry pairs, or according to a plan (tensor/carries.h).
// Integer sums have one value, so every set of instructions gives the same bits.
#include "tensor/tile.h"

namespace elinvar {

// C[j] = S[j] 2^(row_exponent + column_exponents[j] - 26), by the rule of tensor/quantized.h, plus bias[j] unless bias
// is null. S has integers below 2^53.
void finish_sums(const double* sums, int64_t count, int32_t row_exponent, const int32_t* column_exponents,
                 const float* bias, float* c);

// Units of processors that multiply pairs: vectors, which multiply and add in two steps; those that do it in one
// (AVX-VNNI, AVX-512 VNNI); and tiles of bytes (AMX), which are used with the instruction set avx512.
enum class PairUnits : uint8_t { vectors, dot_products, tiles };

// The best units that are used where the processor has them; all, by default. For tests and benchmarks; call it while
// no kernel runs.
void use_pair_units(PairUnits most);

// Whether this process may use AMX.
bool has_pair_tiles();

}  // namespace elinvar
