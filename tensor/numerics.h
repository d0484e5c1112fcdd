#pragma once
// The constants of the canonical numerics (NUMERICS.md). Changing one changes bits: raise the version with it.
#include <cstdint>

namespace elinvar {

inline constexpr int kNumericsVersion = 1;

inline constexpr int64_t kChunk = 512;        // rule 8: products are summed in chunks of this many nominal k
inline constexpr int64_t kGroup = 16;         // rule 8: chunks in a group
inline constexpr int64_t kRowLanes = 64;      // rule 11: virtual lanes of a row sum
inline constexpr int64_t kRowSegment = 4096;  // rule 11: longest row summed at once
constexpr int64_t segments_of(int64_t n) { return (n + kRowSegment - 1) / kRowSegment; }  // of a row of n
inline constexpr int64_t kColumnLeaf = 64;  // rules 12 and 15: rows of a column chain
inline constexpr int kMostShards = 64;      // rule 25: most virtual shards

}  // namespace elinvar
