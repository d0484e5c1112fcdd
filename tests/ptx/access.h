#pragma once
// Loads and stores: checks the addresses of a warp's lanes for alignment and bounds, and translates them to addresses
// in the host's memory.
#include <array>
#include <cstddef>

#include "tests/ptx/races.h"
#include "tests/ptx/warp.h"

namespace elinvar::ptx {

enum class Space { global, shared, local, parameter, generic };

using Addresses = std::array<uint64_t, kLanes>;  // in the host's memory

// Returns the places of the lanes that take part. Throws Fault if an address is not a multiple of `bytes`, or the bytes
// there are not in the space.
Addresses locate(Warp& warp, const Instruction& i, Lanes lanes, Space space, size_t bytes, Access kind);

// The same for one address, a multiple of `bytes`: so many bytes of shared memory, or `given` bytes of global memory.
unsigned char* shared_place(Warp& warp, uint32_t address, size_t bytes);
const unsigned char* global_place(Warp& warp, uint64_t address, size_t bytes, size_t given, const Instruction& i);

class Decoder;
struct Statement;

// ld and st. Returns false for a form that it does not know.
bool decode_access(Decoder& decoder, const Statement& s, Instruction& i);
// atom: the larger of two integers.
bool decode_atomic(Decoder& decoder, const Statement& s, Instruction& i);

}  // namespace elinvar::ptx
