#include "tensor/cuda/kernel.h"

#include "tensor/cuda/many.h"
#include "tensor/cuda/reduce.h"
#include "tensor/cuda/xxh3.h"
#include "tensor/ops/digest.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

constexpr int kThreads = 256, kRows = kThreads / xxh3::kLanes;

// Elements as integers of their width. Only NaN exceeds kInfinity; types without NaN keep the default.
template <class Bits, Bits kInfinity = static_cast<Bits>(~Bits{0}), Bits kNaN = 0>
struct Elements {
  const Bits* x;

  __device__ Bits canonical(int64_t i) const {
    constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
    const Bits b = x[i];
    return static_cast<Bits>(b & kMagnitude) > kInfinity ? kNaN : b;
  }
  __device__ uint64_t word(int64_t byte) const {
    constexpr int kWidth = sizeof(Bits);
    uint64_t word = 0;
#pragma unroll
    for (int k = 0; k < 8 / kWidth; ++k) word |= uint64_t{canonical(byte / kWidth + k)} << 8 * kWidth * k;
    return word;
  }
  __device__ unsigned char byte(int64_t at) const {
    constexpr int kWidth = sizeof(Bits);
    return static_cast<unsigned char>(canonical(at / kWidth) >> 8 * (at % kWidth));
  }
};

struct Room {
  uint64_t secret[xxh3::kSecretWords];
  uint64_t sums[2][kRows][xxh3::kLanes];
  unsigned char text[xxh3::kShortest];

  __device__ const unsigned char* secret_bytes() const { return reinterpret_cast<const unsigned char*>(secret); }
};

// Each row of threads adds up a block, one thread per lane. Then eight threads go through the rows in order; the others
// do not wait, because they write the sums of the next rows to another place.
template <class E>
__device__ xxh3::Hash hash_long(const E& x, int64_t count, Room& room) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % xxh3::kLanes, row = thread / xxh3::kLanes;
  const int64_t full = (count - 1) / xxh3::kBlock;  // blocks, before the last stripes
  uint64_t accumulator = xxh3::initial(lane);
  int turn = 0;
  for (int64_t first = 0; first <= full; first += kRows, turn ^= 1) {
    const int64_t block = first + row, at = block * xxh3::kBlock + 8 * lane;
    xxh3::Sums sums;
    if (block < full) {
#pragma unroll
      for (int s = 0; s < xxh3::kStripes; ++s) sums.add(x.word(at + s * xxh3::kStripe), room.secret[lane + s]);
    } else if (block == full) {
      const auto stripes = static_cast<int>((count - 1 - full * xxh3::kBlock) / xxh3::kStripe);
      for (int s = 0; s < stripes; ++s) sums.add(x.word(at + s * xxh3::kStripe), room.secret[lane + s]);
      sums.add(x.word(count - xxh3::kStripe + 8 * lane),
               xxh3::read(room.secret_bytes() + xxh3::kSecretBytes - xxh3::kStripe - 7 + 8 * lane));
    }
    room.sums[turn][row][lane] = sums.own + __shfl_xor_sync(kWholeWarp, sums.neighbours, 1);
    __syncthreads();
    if (thread >= xxh3::kLanes) continue;
    for (int r = 0; r < kRows && first + r <= full; ++r) {
      accumulator += room.sums[turn][r][lane];
      if (first + r < full) accumulator = xxh3::scrambled(accumulator, room.secret[xxh3::kStripes + lane]);
    }
  }
  __syncthreads();
  if (thread < xxh3::kLanes) room.sums[0][0][lane] = accumulator;
  __syncthreads();
  return thread == 0 ? xxh3::merged(room.sums[0][0], room.secret_bytes(), count) : xxh3::Hash{};
}

template <class E>
__device__ xxh3::Hash hash_short(const E& x, int count, Room& room) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < count) room.text[thread] = x.byte(thread);
  __syncthreads();
  return thread == 0 ? xxh3::of_short(room.text, count, room.secret_bytes()) : xxh3::Hash{};
}

template <class E>
__device__ void digest_chunk(const DigestArgs& a, int64_t chunk, E x, Room& room) {
  const int64_t at = chunk * kDigestChunkBytes, rest = a.bytes - at;
  const int64_t count = rest < kDigestChunkBytes ? rest : kDigestChunkBytes;
  x.x += at / static_cast<int64_t>(sizeof *x.x);
  const xxh3::Hash hash =
      count < xxh3::kShortest ? hash_short(x, static_cast<int>(count), room) : hash_long(x, count, room);
  if (threadIdx.x == 0) a.digests.as<Digest>()[chunk] = {hash.high, hash.low};
}

// One block of threads per chunk.
__global__ void __launch_bounds__(kThreads) digest_blocks(Many<DigestArgs> all) {
  __shared__ Room room;
  const auto [a, chunk] = all.find();
  if (threadIdx.x < xxh3::kSecretWords) room.secret[threadIdx.x] = xxh3::kSecret[threadIdx.x];
  __syncthreads();
  switch (a.x.dtype) {
    case DType::f32:
      return digest_chunk(a, chunk, Elements<uint32_t, 0x7f800000u, 0x7fc00000u>{a.x.as<uint32_t>()}, room);
    case DType::f64:
      return digest_chunk(a, chunk, Elements<uint64_t, 0x7ff0000000000000u, 0x7ff8000000000000u>{a.x.as<uint64_t>()},
                          room);
    case DType::bf16:
      return digest_chunk(a, chunk, Elements<uint16_t, 0x7f80u, 0x7fc0u>{a.x.as<uint16_t>()}, room);
    case DType::i32:
      return digest_chunk(a, chunk, Elements<uint32_t>{a.x.as<uint32_t>()}, room);
    case DType::i64:
      return digest_chunk(a, chunk, Elements<uint64_t>{a.x.as<uint64_t>()}, room);
    case DType::u8:
      return digest_chunk(a, chunk, Elements<uint8_t>{a.x.as<uint8_t>()}, room);
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void digest_chunks(Gpu& stream, std::span<const DigestArgs> all) {
  launch_many(
      stream, "digest_chunks", all, [](const DigestArgs& a) { return digest_chunks_of(a.bytes); },
      HWY_NAMESPACE::digest_blocks);
}

}  // namespace elinvar
