#pragma once
// Attention on tensor cores, in the form of FlashAttention-2 (Dao 2023). A block keeps rows (queries, or keys for their
// gradients), of which each warp has one or two bands of 16, and passes over tiles of the others in shared memory;
// scores stay in registers, and softmax has a running maximum. Nothing is added across blocks, so the gradients of keys
// and of queries are two kernels, each of which recomputes the scores.
//
// Shared memory is about as busy as the tensor cores: with two bands, each matrix that a warp reads is a factor of
// twice as many products. This takes up to 255 registers of 128 threads, so two blocks run on a multiprocessor, one
// computing exponentials while the other multiplies; a tile has as many rows as registers allow for its scores. Shared
// memory has two tiles: one is multiplied while the other arrives. There is one barrier per tile, and the products of a
// tile take longer than the arrival of the next. Two blocks need at most 196 KiB for this, which sm_90 has; on sm_80
// only one block of the gradients of heads beyond 64 elements fits.
//
// Heads are padded with zeros to kSize: 32, 64 or 128.
//
// This header has what the three kernels share; only ops/attention_fast*.cu include it.
#include <cmath>
#include <optional>

#include "tensor/cuda/elements.h"
#include "tensor/cuda/reduce.h"
#include "tensor/cuda/shared_rows.h"
#include "tensor/fast_product.h"

namespace elinvar::HWY_NAMESPACE::fast {

constexpr int kThreads = 128, kWarps = kThreads / 32, kBlocksAtOnce = 2;
constexpr int kBand = 16, kColumns = 8, kDepth = 16;  // of one product of a warp
constexpr double kLog2E = 1.44269504088896340736;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// 2^x and log2(x), to 22 bits; values below 2^-126 are flushed to zero.
__device__ inline float exp2_of(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
#endif
}

__device__ inline float log2_of(float x) {
#ifdef __CUDACC__
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::log2(x);
#endif
}

// Returns x as a value unknown to the compiler, which then recomputes what depends on it in each iteration of a loop
// instead of keeping it in registers; the loops have none to spare.
__device__ inline int opaque(int x) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// The rows of one head in memory, in chunks that are aligned to 16 bytes.
class HeadRows {
 public:
  __device__ HeadRows(const HeadsView& heads, int64_t b, int64_t h, int64_t size)
      : data_(heads.of<bf16>(b, h)), step_(heads.time), size_(static_cast<int>(size)) {}

  // Copies rows first .. first + kRows - 1, zeros from `end` on, to shared memory. All threads of the block call it.
  template <int kSize, int kRows>
  __device__ void copy(int first, int end, SharedRows<kSize> to) const {
    constexpr int kChunks = kSize / 8, kAtOnce = kThreads / kChunks;
    static_assert(kAtOnce % 8 == 0 && kRows % kAtOnce == 0, "a thread's chunks change places in the same way");
    const int thread = opaque(static_cast<int>(threadIdx.x)), row = thread / kChunks, chunk = thread % kChunks;
    const bf16* from = data_ + (first + row) * step_ + chunk * 8;
    const int left = chunk * 8 < size_ ? end - first - row : 0;
    const uint32_t place = to.at + to.place(row, chunk);
#pragma unroll
    for (int i = 0; i < kRows; i += kAtOnce, from += kAtOnce * step_) copy_async(place + to.bytes(i), from, i < left);
  }

  using Chunk = Some<bf16, 8>;
  __device__ Chunk chunk(int row, int i) const {
    if (i * 8 < size_) return *reinterpret_cast<const Chunk*>(data_ + row * step_ + i * 8);
    return {};
  }

 private:
  const bf16* data_;
  int64_t step_;
  int size_;
};

__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / 32; }

// The rows of a warp as factors.
template <int kSize, int kBands, bool kKept>
class Factors {
 public:
  // Call it once the rows have arrived.
  __device__ explicit Factors(SharedRows<kSize> of_block)
      : rows_{of_block.at + of_block.bytes(warp_of_block() * kBands * kBand)} {
    if constexpr (kKept)
#pragma unroll
      for (int band = 0; band < kBands; ++band)
#pragma unroll
        for (int k = 0; k < kSize / kDepth; ++k) kept_[band][k] = rows_.rows(band * kBand, k);
  }
  __device__ FactorA at(int band, int k) const {
    if constexpr (kKept) return kept_[band][k];
    else return rows_.rows(band * kBand, k);
  }

 private:
  SharedRows<kSize> rows_;
  FactorA kept_[kKept ? kBands : 1][kKept ? kSize / kDepth : 1];
};

// sums += rows of the warp times kTile rows `b`.
template <int kTile, int kSize, int kBands, bool kKept>
__device__ void multiply_rows(const Factors<kSize, kBands, kKept>& a, SharedRows<kSize> b,
                              Sums (&sums)[kBands][kTile / kColumns]) {
#pragma unroll(kSize <= 64 ? kSize / kDepth : 4)  // eight would be read so far ahead that registers do not suffice
  for (int k = 0; k < kSize / kDepth; ++k) {
    FactorA rows[kBands];
#pragma unroll
    for (int band = 0; band < kBands; ++band) rows[band] = a.at(band, k);
#pragma unroll
    for (int j = 0; j < kTile / kColumns; j += 2) {
      const TwoFactorsB columns = b.rows_as_columns(j * kColumns, k);
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        multiply_add(sums[band][j], rows[band], columns.first);
        multiply_add(sums[band][j + 1], rows[band], columns.second);
      }
    }
  }
}

// sums += weights, in registers, times kTile rows `b`.
template <int kTile, int kSize, int kBands>
__device__ void add_weighted(const Sums (&weights)[kBands][kTile / kColumns], SharedRows<kSize> b,
                             Sums (&sums)[kBands][kSize / kColumns]) {
#pragma unroll
  for (int k = 0; k < kTile / kDepth; ++k) {
    FactorA rows[kBands];
#pragma unroll
    for (int band = 0; band < kBands; ++band) rows[band] = as_factor(weights[band][2 * k], weights[band][2 * k + 1]);
#pragma unroll
    for (int d = 0; d < kSize / kColumns; d += 2) {
      const TwoFactorsB columns = b.columns(k * kDepth, d / 2);
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        multiply_add(sums[band][d], rows[band], columns.first);
        multiply_add(sums[band][d + 1], rows[band], columns.second);
      }
    }
  }
}

// Position of a thread's elements: at[2 r + c] of sums [band][j] is row(band, r) of the warp, column(j, c) of the tile.
__device__ inline int row_of(int band, int r) { return band * kBand + lane_group() + 8 * r; }
__device__ inline int column_of(int j, int c) { return j * kColumns + 2 * lane_in_group() + c; }

// Calls f(row, column, sum) for all of them.
template <int kBands, int kCount, class F>
__device__ void each_sum(Sums (&sums)[kBands][kCount], F f) {
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int j = 0; j < kCount; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) f(row_of(band, e / 2), column_of(j, e % 2), sums[band][j].at[e]);
}

// Maximum over the four lanes that share a row; each of them gets it.
__device__ inline float row_max(float x) {
  for (const int other : {1, 2}) x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, other));
  return x;
}
__device__ inline float row_total(float x) {
  for (const int other : {1, 2}) x = x + __shfl_xor_sync(kWholeWarp, x, other);
  return x;
}

// Stores sums, each row times a factor, as rows of a head. Rows from `end` on and elements beyond the head are left
// out.
template <int kSize, int kBands, class Factor>
__device__ void store_rows(const Sums (&sums)[kBands][kSize / kColumns], const HeadsView& heads, int64_t b, int64_t h,
                           int first, int64_t end, int64_t size, Factor factor) {
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t row = first + row_of(band, r);
      if (row >= end) continue;
      bf16* to = heads.of<bf16>(b, h) + row * heads.time;
      const bool pairs = reinterpret_cast<uintptr_t>(to) % sizeof(uint32_t) == 0;
#pragma unroll
      for (int j = 0; j < kSize / kColumns; ++j) {
        const float* at = sums[band][j].at + 2 * r;
        const uint32_t both = rounded_pair(at[0] * factor(band, r), at[1] * factor(band, r));
        const int64_t left = column_of(j, 0), right = column_of(j, 1);
        if (pairs && right < size) *reinterpret_cast<uint32_t*>(to + left) = both;
        else {
          if (left < size) to[left].bits = static_cast<uint16_t>(both);
          if (right < size) to[right].bits = static_cast<uint16_t>(both >> 16);
        }
      }
    }
}

// The rows of one head that a block computes. Blocks with the most work come first: the last queries see the most keys,
// and the first keys are seen by the most queries.
enum class Order { first_rows_first, last_rows_first };
struct Place {
  int first, h, b;
  __device__ Place(int64_t time, int64_t heads, int rows, Order order = Order::last_rows_first) {
    const int block = opaque(static_cast<int>(blockIdx.x)), blocks = static_cast<int>((time + rows - 1) / rows),
              head = block / blocks, heads_of_sample = static_cast<int>(heads);
    first = (order == Order::last_rows_first ? blocks - 1 - block % blocks : block % blocks) * rows;
    h = head % heads_of_sample;
    b = head / heads_of_sample;
  }
};

// Query i sees the existing keys among 0 .. i + ahead.
__device__ inline int ahead_of(const AttentionShape& s) { return static_cast<int>(s.causal ? s.tk - s.tq : s.tk); }

// The least and the greatest number of keys that a row of a warp sees; none if all its rows are beyond the last query.
struct Seen {
  int all, some;
  __device__ Seen(const AttentionShape& s, int first, int rows) {
    const int queries = static_cast<int>(s.tq), keys = static_cast<int>(s.tk), ahead = ahead_of(s);
    all = std::min(first + 1 + ahead, keys);
    some = first < queries ? std::min(std::min(first + rows, queries) + ahead, keys) : 0;
  }
};

// Copies elements (b, t, h, d), each xor `flip`, with heads padded with zeros to `filled` elements.
static __global__ void fast_chunks(HeadsView from, int64_t n, int64_t time, int64_t heads, int64_t size, int64_t filled,
                                   uint16_t flip, bf16* to) {
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    const int64_t d = i % filled, h = i / filled % heads, t = i / filled / heads % time, b = i / filled / heads / time;
    to[i].bits = d < size ? static_cast<uint16_t>(from.of<bf16>(b, h)[t * from.time + d].bits ^ flip) : uint16_t{0};
  }
}

// Heads in the layout that the kernels read, aligned chunks: a copy if they have another layout or change signs.
class Chunks {
 public:
  Chunks(Gpu& stream, const AttentionShape& s, const HeadsView& heads, int64_t time, int64_t count, bool turned = false)
      : view_(heads) {
    const auto whole = [](int64_t elements) { return elements % 8 == 0; };
    if (!turned && whole(s.size) && whole(heads.batch) && whole(heads.time) && whole(heads.head) &&
        start_at_16(heads.of<bf16>(0, 0)))
      return;
    const int64_t filled = (s.size + 7) / 8 * 8, n = s.batch * time * count * filled;
    copy_.emplace(stream, n);
    launch(stream, "fast_attention_chunks", {.blocks = blocks_for(n)}, fast_chunks, heads, n, time, count, s.size,
           filled, static_cast<uint16_t>(turned ? 0x8000 : 0), copy_->data());
    view_ = {copy_->data(), time * count * filled, count * filled, filled};
  }
  const HeadsView& view() const { return view_; }

 private:
  HeadsView view_;
  std::optional<DeviceScratch<bf16>> copy_;
};

// Calls f with the size to which heads are padded, as a constant.
template <class F>
void with_padded(const AttentionShape& s, F f) {
  invariant(s.size <= kMostFastHead, "a head that fast attention does not take");
  if (std::max(s.tq, s.tk) >= INT32_MAX / 4)
    throw UsageError("[attention] a GPU takes sequences below 2^29, got " + std::to_string(std::max(s.tq, s.tk)) +
                     "; use shorter ones");
  if (s.size <= 32) f(std::integral_constant<int, 32>());
  else if (s.size <= 64) f(std::integral_constant<int, 64>());
  else f(std::integral_constant<int, 128>());
}

// The grid of a kernel whose blocks keep `kept` sets of rows and pass over tiles of two kinds.
template <class Cut, int kSize>
Grid grid_of(int64_t heads, int64_t time, int kept, size_t more = 0) {
  return {.blocks = heads * ((time + Cut::kRows - 1) / Cut::kRows),
          .threads = kThreads,
          .shared = SharedRows<kSize>::bytes(kept * Cut::kRows + 4 * Cut::kTile) + more};
}

// The factor from scores to exponents of two. It is never zero, because scores may be infinite.
inline float base_two(const AttentionShape& s) {
  const auto scale = static_cast<float>(s.scale * kLog2E);
  return std::copysign(std::max(std::fabs(scale), std::numeric_limits<float>::min()), scale);
}

}  // namespace elinvar::HWY_NAMESPACE::fast
