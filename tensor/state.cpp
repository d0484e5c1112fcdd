#include "tensor/state.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

namespace elinvar {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;

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

}  // namespace

Digest digest(const Tensor& tensor) {
  const Tensor x = tensor.to(Device{}).to_contiguous();
  const char* bytes = static_cast<const char*>(x.raw());
  const int64_t size = x.bytes();
  std::vector<Digest> chunks(static_cast<size_t>((size + kChunkBytes - 1) / kChunkBytes));
  cpu_stream().parallel_for(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      chunks[static_cast<size_t>(i)] =
          digest_chunk(x.dtype(), bytes + i * kChunkBytes, std::min(kChunkBytes, size - i * kChunkBytes));
  });

  Hasher hasher;
  hasher.add(std::string_view(name_of(x.dtype())));
  hasher.add_integer(x.ndim());
  for (int64_t extent : x.shape()) hasher.add_integer(extent);
  for (const Digest& chunk : chunks) hasher.add(chunk);
  return hasher.digest();
}

Digest digest(const StateDict& state) {
  Hasher hasher;
  for (const auto& [name, tensor] : state) {
    hasher.add(std::string_view(name));
    hasher.add(digest(tensor));
  }
  return hasher.digest();
}

}  // namespace elinvar
