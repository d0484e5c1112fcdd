#pragma once
// Operands of a product on a GPU, and how a block of threads brings a tile of one to shared memory. An operand has a
// line (a row of A, a column of B) for each i. It finds the term (i, k) from what depends on the line and what depends
// on k, so that neither is recomputed for each term:
//   static constexpr bool kAlongK;            // whether neighbours in memory are neighbours in k; otherwise in i
//   using Line, Place;
//   Line line(int batch, int i, int k) const;
//   Place place(int batch, int k) const;
//   void advance(Line (&)[kLines], Place&, int by) const;  // to k + by, any number of lines
//   bool has(const Line&, const Place&) const;          // otherwise the term is zero
//   const T* at(const Line&, const Place&) const;       // address of the term
// T is float, or of exact products a pair (uint32_t, exact_product.h) or a chunk (exact_warpgroups.h).
#include "tensor/cuda/kernel.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kDepth = 8;  // steps of k per tile

// 16 numbers that are neighbours along k (chunks.h).
struct alignas(16) Chunk {
  uint32_t words[4];
};

template <int kSide>
struct alignas(16) TileOfSteps {
  static constexpr int kRow = kSide + 4;  // padded by four, so that transposed stores have no bank conflicts
  float at[kDepth][kRow];
};

// Matrices of a batch: term (i, k) is at data[batch * of_batch + i * of_i + k * of_k].
template <bool kTermsAlongK, class T = float>
struct MatrixOperand {
  static constexpr bool kAlongK = kTermsAlongK;
  using Line = const T*;  // advances itself, so a Place holds nothing
  struct Place {};
  const T* data;
  int64_t of_i, of_k, of_batch;

  __device__ Line line(int batch, int i, int k) const { return data + batch * of_batch + i * of_i + k * of_k; }
  __device__ Place place(int, int) const { return {}; }
  template <int kLines>
  __device__ void advance(Line (&lines)[kLines], Place&, int by) const {
#pragma unroll
    for (int l = 0; l < kLines; ++l) lines[l] += by * of_k;
  }
  __device__ bool has(const Line&, const Place&) const { return true; }
  __device__ const T* at(const Line& line, const Place&) const { return line; }

  // Whether any four neighbours are in 16 aligned bytes, for extents i and k.
  bool in_fours(int64_t i, int64_t k) const {
    const int64_t next = kAlongK ? of_k : of_i, other = kAlongK ? of_i : of_k, extent = kAlongK ? k : i;
    return next == 1 && other % 4 == 0 && of_batch % 4 == 0 && extent % 4 == 0 &&
           reinterpret_cast<uintptr_t>(data) % 16 == 0;
  }
};

// A thread's part in loading tiles of kSide lines by kDepth steps. It keeps pieces of four terms in registers until
// store() puts them in shared memory, so that loads run while the previous tile is multiplied. kWidth is 4 if any four
// neighbours exist or are zero together and are in 16 aligned bytes (in_fours), else 1.
template <class Operand, int kSide, int kThreads, int kWidth>
class TileLoader {
 public:
  using Tile = TileOfSteps<kSide>;

  __device__ TileLoader(const Operand& operand, int batch, int first, int lines, int k)
      : operand_(operand), to_(offset() * Tile::kRow + line_of(0)), place_(operand.place(batch, k + offset())) {
#pragma unroll
    for (int p = 0; p < kLines; ++p) {
      exists_[p] = first + line_of(p) < lines;
      line_[p] = operand.line(batch, exists_[p] ? first + line_of(p) : first, k + offset());
    }
  }

  // Starts to load the tile that begins `by` steps after the last one, at first after k, of which `steps` steps exist.
  // Others are zero and not read, so that callers need no branch, behind which the compiler would delay the loads.
  __device__ void load(int by, int steps) {
    operand_.advance(line_, place_, by);
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      typename Operand::Line line[1] = {line_[l]};
      typename Operand::Place place = place_;
      int left = exists_[l] ? steps - offset() : 0;
#pragma unroll
      for (int p = l; p < kPieces; p += kLines) {
        if constexpr (kWidth == 4) {
          piece_[p] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (left > 0 && operand_.has(line[0], place))
            piece_[p] = *reinterpret_cast<const float4*>(operand_.at(line[0], place));
          if (p + kLines < kPieces) operand_.advance(line, place, kNextPiece), left -= kNextPiece;
        } else {
          piece_[p].x = term(left, line, place);
          piece_[p].y = term(left, line, place);
          piece_[p].z = term(left, line, place);
          piece_[p].w = term(left, line, place);
        }
      }
    }
  }

  __device__ void store(Tile& tile) const {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      constexpr int kNext = kLines > 1 ? kThreads / 2 : kNextPiece * Tile::kRow;
      float* const to = &tile.at[0][0] + (to_ + p * kNext);
      if constexpr (kPieceAlongK) {
        to[0] = piece_[p].x;
        to[Tile::kRow] = piece_[p].y;
        to[2 * Tile::kRow] = piece_[p].z;
        to[3 * Tile::kRow] = piece_[p].w;
      } else {
        *reinterpret_cast<float4*>(to) = piece_[p];
      }
    }
  }

 private:
  static_assert(kDepth == 8 && kSide * kDepth % (4 * kThreads) == 0 && kThreads % kSide == 0);
  static constexpr bool kPieceAlongK = Operand::kAlongK || kWidth == 1;
  static constexpr int kPieces = kSide * kDepth / 4 / kThreads;
  static constexpr int kLines = Operand::kAlongK ? kPieces : 1;         // lines whose terms a thread loads
  static constexpr int kSideBySide = kPieceAlongK ? kSide : kSide / 4;  // pieces of one k, along i
  static constexpr int kNextPiece = kDepth / kPieces;  // steps of k to the thread's next piece of a line

  // Neighbouring threads are neighbours along k in pairs, or otherwise along i.
  __device__ static int offset() {
    const int t = static_cast<int>(threadIdx.x);
    return Operand::kAlongK ? t % 2 * 4 : t / kSideBySide * (kPieceAlongK ? 4 : 1);
  }
  __device__ static int line_of(int p) {
    const int t = static_cast<int>(threadIdx.x);
    return Operand::kAlongK ? t / 2 + p * (kThreads / 2) : t % kSideBySide * (kPieceAlongK ? 1 : 4);
  }

  __device__ float term(int& left, typename Operand::Line (&line)[1], typename Operand::Place& place) const {
    float x = 0.0f;
    if (left > 0 && operand_.has(line[0], place)) x = *operand_.at(line[0], place);
    --left;
    operand_.advance(line, place, 1);
    return x;
  }

  const Operand& operand_;
  int to_;  // where the first piece is stored in a tile
  typename Operand::Place place_;
  typename Operand::Line line_[kLines];
  bool exists_[kLines];
  float4 piece_[kPieces];
};

}  // namespace elinvar::HWY_NAMESPACE
