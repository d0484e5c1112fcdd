#include "tensor/digest_tree.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "tensor/transfer.h"

namespace elinvar {
namespace {

constexpr int64_t kGroupBytes = int64_t{64} << 20;  // of tensors that are looked at together, and so copied to the CPU
constexpr int64_t kGrainBytes = int64_t{64} << 10;

// Elements as integers of their width. A NaN is whatever exceeds infinity once the sign is dropped.
template <class Bits, Bits kInfinity, Bits kNaN>
Digest digest_floats(const Bits* x, int64_t n) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  const auto is_nan = [](Bits b) { return static_cast<Bits>(b & kMagnitude) > kInfinity; };
  // Magnitudes are positive as signed numbers, too, whose comparison every vector unit has.
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

Digest digest_of(const Tensor& x, const std::vector<Digest>& chunks) {
  Hasher hasher;
  hasher.add(std::string_view(name_of(x.dtype())));
  hasher.add_integer(x.ndim());
  for (int64_t extent : x.shape()) hasher.add_integer(extent);
  for (const Digest& chunk : chunks) hasher.add(chunk);
  return hasher.digest();
}

// `tensors` are contiguous and on the CPU.
void digest_group(std::span<const Tensor> tensors, TensorDigest* results) {
  std::vector<Chunk> chunks;
  int64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    const int64_t size = x.bytes();
    results[i].chunks.resize(static_cast<size_t>((size + kDigestChunkBytes - 1) / kDigestChunkBytes));
    for (size_t c = 0; c < results[i].chunks.size(); ++c) {
      const int64_t at = static_cast<int64_t>(c) * kDigestChunkBytes, count = std::min(kDigestChunkBytes, size - at);
      chunks.push_back({x.dtype(), static_cast<const char*>(x.raw()) + at, count, total, &results[i].chunks[c]});
      total += count;
    }
  }
  cpu_stream().parallel_for(total, kGrainBytes, [&](int64_t begin, int64_t end) {
    auto chunk = std::lower_bound(chunks.begin(), chunks.end(), begin,
                                  [](const Chunk& c, int64_t byte) { return c.before < byte; });
    for (; chunk != chunks.end() && chunk->before < end; ++chunk)
      *chunk->digest = digest_chunk(chunk->dtype, chunk->bytes, chunk->count);
  });
  for (size_t i = 0; i < tensors.size(); ++i) results[i].digest = digest_of(tensors[i], results[i].chunks);
}

}  // namespace

// Those of a GPU are on their way while the group before them is digested.
std::vector<TensorDigest> digest_tree(std::span<const Tensor> tensors) {
  std::vector<TensorDigest> results(tensors.size());
  size_t end = 0;
  const auto send_group = [&] {
    std::vector<Download> sent;
    for (int64_t bytes = 0; end < tensors.size() && (sent.empty() || bytes < kGroupBytes); ++end) {
      sent.emplace_back(tensors[end]);
      bytes += tensors[end].bytes();
    }
    return sent;
  };
  std::vector<Download> next = send_group();
  for (size_t begin = 0; begin < tensors.size();) {
    std::vector<Download> sent = std::move(next);
    next = send_group();
    std::vector<Tensor> group;
    for (Download& tensor : sent) group.push_back(tensor.wait().to_contiguous());
    digest_group(group, &results[begin]);
    begin += group.size();
  }
  return results;
}

std::string short_hex(const Digest& digest) { return digest.hex().substr(0, kShortDigest); }

}  // namespace elinvar
