#pragma once
// Instructions in which the lanes of a warp exchange values, and copies to shared memory that end later.
#include "tests/ptx/decoder.h"

namespace elinvar::ptx {

// Each returns false for a form that it does not know.
bool read_count(const std::string& operand, int& count);                        // a number that is not negative
bool decode_shuffle(Decoder& decoder, const Statement& s, Instruction& i);      // shfl.sync
bool decode_matrix_load(Decoder& decoder, const Statement& s, Instruction& i);  // ldmatrix
bool decode_product(Decoder& decoder, const Statement& s, Instruction& i);      // mma
bool decode_async_copy(Decoder& decoder, const Statement& s, Instruction& i);   // cp.async
bool decode_warpgroup(Decoder& decoder, const Statement& s, Instruction& i);    // wgmma
bool decode_proxy_fence(Decoder& decoder, const Statement& s, Instruction& i);  // fence.proxy

}  // namespace elinvar::ptx
