#pragma once
// Instructions in which the lanes of a warp exchange values, and copies to shared memory that end later.
#include "tests/ptx/decoder.h"

namespace elinvar::ptx {

// Each returns false for a form that it does not know.
bool decode_shuffle(Decoder& decoder, const Statement& s, Instruction& i);      // shfl.sync
bool decode_matrix_load(Decoder& decoder, const Statement& s, Instruction& i);  // ldmatrix
bool decode_product(Decoder& decoder, const Statement& s, Instruction& i);      // mma
bool decode_async_copy(Decoder& decoder, const Statement& s, Instruction& i);   // cp.async

}  // namespace elinvar::ptx
