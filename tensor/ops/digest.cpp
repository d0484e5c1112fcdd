#include "tensor/ops/digest.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

namespace elinvar {
namespace {

constexpr int64_t kGrainBytes = int64_t{64} << 10;

// Elements as integers of their width. A NaN exceeds infinity once its sign is dropped.
template <class Bits, Bits kInfinity, Bits kNaN>
Digest digest_floats(const Bits* x, int64_t n) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  const auto is_nan = [](Bits b) { return static_cast<Bits>(b & kMagnitude) > kInfinity; };
  // Magnitudes are positive as signed numbers too, and every vector unit compares those.
  using Signed = std::make_signed_t<Bits>;
  Bits any = 0;
  for (int64_t i = 0; i < n; ++i)
    any |=
        static_cast<Signed>(x[i] & kMagnitude) > static_cast<Signed>(kInfinity) ? static_cast<Bits>(~Bits{0}) : Bits{0};
  if (any == 0) return digest_bytes(x, static_cast<size_t>(n) * sizeof(Bits));

  Hasher hasher;
  std::array<Bits, 1024> piece;
  for (int64_t begin = 0; begin < n; begin += static_cast<int64_t>(piece.size())) {
    const int64_t count = std::min<int64_t>(n - begin, static_cast<int64_t>(piece.size()));
    for (int64_t i = 0; i < count; ++i) {
      const Bits b = x[begin + i];
      piece[static_cast<size_t>(i)] = is_nan(b) ? kNaN : b;
    }
    hasher.add(piece.data(), static_cast<size_t>(count) * sizeof(Bits));
  }
  return hasher.digest();
}

Digest digest_chunk(DType dtype, const char* bytes, int64_t count) {
  switch (dtype) {
    case DType::f32:
      return digest_floats<uint32_t, 0x7f800000u, 0x7fc00000u>(reinterpret_cast<const uint32_t*>(bytes), count / 4);
    case DType::f64:
      return digest_floats<uint64_t, 0x7ff0000000000000u, 0x7ff8000000000000u>(reinterpret_cast<const uint64_t*>(bytes),
                                                                               count / 8);
    case DType::bf16:
      return digest_floats<uint16_t, 0x7f80u, 0x7fc0u>(reinterpret_cast<const uint16_t*>(bytes), count / 2);
    default:
      return digest_bytes(bytes, static_cast<size_t>(count));
  }
}

struct Chunk {
  DType dtype;
  const char* bytes;
  int64_t count, before;  // `before`: bytes of the chunks before it
  Digest* digest;
};

}  // namespace

// All threads share the chunks of all tensors.
void digest_chunks(CpuStream& stream, std::span<const DigestArgs> all) {
  std::vector<Chunk> chunks;
  int64_t total = 0;
  for (const DigestArgs& a : all)
    for (int64_t c = 0; c < digest_chunks_of(a.bytes); ++c) {
      const int64_t at = c * kDigestChunkBytes, count = std::min(kDigestChunkBytes, a.bytes - at);
      chunks.push_back({a.x.dtype, a.x.as<char>() + at, count, total, a.digests.as<Digest>() + c});
      total += count;
    }
  stream.parallel_for(total, kGrainBytes, [&](int64_t begin, int64_t end) {
    auto chunk = std::lower_bound(chunks.begin(), chunks.end(), begin,
                                  [](const Chunk& c, int64_t byte) { return c.before < byte; });
    for (; chunk != chunks.end() && chunk->before < end; ++chunk)
      *chunk->digest = digest_chunk(chunk->dtype, chunk->bytes, chunk->count);
  });
}

}  // namespace elinvar
