#pragma once
// Operands of a product on a GPU, and how a block of threads brings a tile of one to shared memory. An operand has a
// line (a row of A, a column of B) for each i, and says where the term (i, k) lies by what belongs to the line and what
// belongs to k, so that neither is worked out again for each term:
//   static constexpr bool kAlongK;            // whether neighbours in memory are neighbours in k, else in i
//   using Line, Place;
//   Line line(int batch, int i) const;
//   Place place(int batch, int k) const;
//   void advance(Place&, int by) const;       // to k + by
//   const float* at(const Line&, const Place&) const;   // nullptr: a zero term
#include "tensor/cuda/kernel.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kDepth = 8;  // steps of k of a tile

template <int kSide>
struct alignas(16) TileOfSteps {
  float at[kDepth][kSide + 4];  // four more than are used: transposed stores meet no bank twice
};

// A matrix of a batch of them: term (i, k) at data[batch * of_batch + i * of_i + k * of_k].
template <bool kTermsAlongK>
struct MatrixOperand {
  static constexpr bool kAlongK = kTermsAlongK;
  using Line = const float*;
  using Place = int64_t;
  const float* data;
  int64_t of_i, of_k, of_batch;

  __device__ Line line(int batch, int i) const { return data + batch * of_batch + i * of_i; }
  __device__ Place place(int, int k) const { return k * of_k; }
  __device__ void advance(Place& p, int by) const { p += by * of_k; }
  __device__ const float* at(const Line& line, const Place& p) const { return line + p; }

  // Whether four neighbours lie in 16 aligned bytes, with extents i and k.
  bool in_fours(int64_t i, int64_t k) const {
    const int64_t next = kAlongK ? of_k : of_i, other = kAlongK ? of_i : of_k, extent = kAlongK ? k : i;
    return next == 1 && other % 4 == 0 && of_batch % 4 == 0 && extent % 4 == 0 &&
           reinterpret_cast<uintptr_t>(data) % 16 == 0;
  }
};

// A thread's part in loading tiles of kSide lines by kDepth steps, in pieces of four terms that are its own until they
// are put in shared memory: so loads are under way while the tile before is multiplied. kWidth is 4 if any four
// neighbours are there or zero together and lie in 16 aligned bytes (in_fours), else 1.
template <class Operand, int kSide, int kThreads, int kWidth>
class TileLoader {
 public:
  using Tile = TileOfSteps<kSide>;

  __device__ TileLoader(const Operand& operand, int batch, int first, int lines, int k, int k_end)
      : operand_(operand), k_end_(k_end), k_(k + offset()), place_(operand.place(batch, k_)) {
#pragma unroll
    for (int p = 0; p < kLines; ++p) {
      exists_[p] = first + line_of(p) < lines;
      line_[p] = operand.line(batch, exists_[p] ? first + line_of(p) : first);
    }
  }

  // Starts to load the tile of steps k to k + kDepth, of which those before the end exist.
  __device__ void load(int k) {
    const int to = k + offset();
    operand_.advance(place_, to - k_);
    k_ = to;
    auto place = place_;
    int at = k_;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (kLines > 1) place = place_, at = k_;
      const int l = kLines > 1 ? p : 0;
      if constexpr (kWidth == 4) {
        const float* from = exists_[l] && at < k_end_ ? operand_.at(line_[l], place) : nullptr;
        piece_[p] = from ? *reinterpret_cast<const float4*>(from) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      } else {
        piece_[p].x = term(l, at, place);
        piece_[p].y = term(l, at, place);
        piece_[p].z = term(l, at, place);
        piece_[p].w = term(l, at, place);
      }
      if (kWidth == 4 && kLines == 1 && p + 1 < kPieces) operand_.advance(place, kNextPiece), at += kNextPiece;
    }
  }

  __device__ void store(Tile& tile) const {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = line_of(p), k = offset() + (kLines > 1 ? 0 : p * kNextPiece);
      if constexpr (kPieceAlongK) {
        tile.at[k][i] = piece_[p].x;
        tile.at[k + 1][i] = piece_[p].y;
        tile.at[k + 2][i] = piece_[p].z;
        tile.at[k + 3][i] = piece_[p].w;
      } else {
        *reinterpret_cast<float4*>(&tile.at[k][i]) = piece_[p];
      }
    }
  }

 private:
  static_assert(kDepth == 8 && kSide * kDepth % (4 * kThreads) == 0 && kThreads % kSide == 0);
  static constexpr bool kPieceAlongK = Operand::kAlongK || kWidth == 1;
  static constexpr int kPieces = kSide * kDepth / 4 / kThreads;
  static constexpr int kLines = Operand::kAlongK ? kPieces : 1;         // whose terms a thread loads
  static constexpr int kSideBySide = kPieceAlongK ? kSide : kSide / 4;  // pieces of one k, along i
  static constexpr int kNextPiece = kDepth / kPieces;  // steps of k to the thread's next piece of a line

  // Neighbouring threads are neighbours along k in pairs, or else along i.
  __device__ static int offset() {
    const int t = static_cast<int>(threadIdx.x);
    return Operand::kAlongK ? t % 2 * 4 : t / kSideBySide * (kPieceAlongK ? 4 : 1);
  }
  __device__ static int line_of(int p) {
    const int t = static_cast<int>(threadIdx.x);
    return Operand::kAlongK ? t / 2 + p * (kThreads / 2) : t % kSideBySide * (kPieceAlongK ? 1 : 4);
  }

  __device__ float term(int line, int& k, typename Operand::Place& place) const {
    const float* from = exists_[line] && k < k_end_ ? operand_.at(line_[line], place) : nullptr;
    ++k;
    operand_.advance(place, 1);
    return from ? *from : 0.0f;
  }

  const Operand& operand_;
  int k_end_, k_;  // k_ is what place_ stands at
  typename Operand::Place place_;
  typename Operand::Line line_[kLines];
  bool exists_[kLines];
  float4 piece_[kPieces];
};

}  // namespace elinvar::HWY_NAMESPACE
