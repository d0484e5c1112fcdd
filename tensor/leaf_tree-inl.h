// Computes two values (p, q) per channel in one or two sweeps over the rows of each leaf of kColumnLeaf rows, and
// merges them by the adjacent pairwise tree, an odd leaf passing through (NUMERICS.md, rules 12 and 15). For kernels on
// any target. A Leaf has kSweeps, 1 or 2, and
//   add<kSweep, S, L, kPartial>(row, rows, c, count, p, q, stride): continues the chains of L leaves over
//     `rows` rows each, for S vectors of channels from c on (one of `count` channels if kPartial), interleaved
//     so that the chains of narrow rows overlap. The values start as zeros, leaves lie `stride` apart, and
//     whole vectors may be loaded and stored.
//   close<kSweep>(p, n): returns p after a sweep over a leaf of n rows.
// and a type Merge, whose call (pA, qA, nA, pB, qB, nB) joins a right neighbour B of nB rows to A.
#if defined(ELINVAR_TENSOR_LEAF_TREE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_LEAF_TREE_INL_H_
#undef ELINVAR_TENSOR_LEAF_TREE_INL_H_
#else
#define ELINVAR_TENSOR_LEAF_TREE_INL_H_
#endif

#include <algorithm>

#include "tensor/leaf_tree.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <int kSweep, int S, bool kPartial, class T, class Leaf>
void strip(const Leaf& leaf, int64_t row, int64_t rows, int64_t c, int64_t count, T* p, T* q, int64_t stride) {
  constexpr int L = kSideBySide / S;
  int64_t done = 0;
  for (; done + L * kColumnLeaf <= rows; done += L * kColumnLeaf) {
    const int64_t at = done / kColumnLeaf * stride;
    leaf.template add<kSweep, S, L, kPartial>(row + done, kColumnLeaf, c, count, p + at, q + at, stride);
  }
  for (; done < rows; done += kColumnLeaf) {
    const int64_t at = done / kColumnLeaf * stride, some = std::min(kColumnLeaf, rows - done);
    leaf.template add<kSweep, S, 1, kPartial>(row + done, some, c, count, p + at, q + at, stride);
  }
}

// Sweeps once over `rows` rows (several whole leaves, or a single one) and the channels [c_begin, c_end), `piece` rows
// at a time.
template <int kSweep, class T, class Leaf>
void sweep(const Leaf& leaf, int64_t row, int64_t rows, int64_t piece, int64_t c_begin, int64_t c_end, T* p, T* q,
           int64_t stride) {
  using V = Vec<T>;
  constexpr int64_t kLanes = V::kLanes;
  for (int64_t r = 0; r < rows; r += piece) {
    int64_t c = c_begin;
    const auto run = [&]<int S, bool kPartial>() {
      strip<kSweep, S, kPartial>(leaf, row + r, std::min(piece, rows - r), c, c_end - c, p + (c - c_begin),
                                 q + (c - c_begin), stride);
      c += S * kLanes;
    };
    if constexpr (sizeof(T) == 4) {  // float64 serves checks, and is not worth the time to compile all widths
      while (c + 4 * kLanes <= c_end) run.template operator()<4, false>();
      while (c + 2 * kLanes <= c_end) run.template operator()<2, false>();
    }
    while (c + kLanes <= c_end) run.template operator()<1, false>();
    if (c < c_end) run.template operator()<1, true>();
  }
  for (int64_t r = 0; r < rows; r += kColumnLeaf, p += stride)
    for (int64_t i = 0; i < c_end - c_begin; i += kLanes)
      leaf.template close<kSweep>(V::load(p + i), static_cast<T>(std::min(kColumnLeaf, rows - r))).store(p + i);
}

// Reduces the tree over the leaves of a block of `rows` rows, for one vector of channels; the root replaces leaf 0.
template <class Merge, class T>
void reduce_leaves(int64_t rows, T* p_at, T* q_at, int64_t stride) {
  using V = Vec<T>;
  V p[kBlockLeaves], q[kBlockLeaves];
  T n[kBlockLeaves];
  int64_t width = (rows + kColumnLeaf - 1) / kColumnLeaf;
  for (int64_t k = 0; k < width; ++k) {
    p[k] = V::load(p_at + k * stride);
    q[k] = V::load(q_at + k * stride);
    n[k] = static_cast<T>(std::min(kColumnLeaf, rows - k * kColumnLeaf));
  }
  for (; width > 1; width = (width + 1) / 2) {
    for (int64_t i = 0; 2 * i < width; ++i) {
      V pa = p[2 * i], qa = q[2 * i];
      T na = n[2 * i];
      if (2 * i + 1 < width) {
        Merge{}(pa, qa, na, p[2 * i + 1], q[2 * i + 1], n[2 * i + 1]);
        na = na + n[2 * i + 1];
      }
      p[i] = pa;
      q[i] = qa;
      n[i] = na;
    }
  }
  p[0].store(p_at);
  q[0].store(q_at);
}

// Runs tasks [begin, end) of blocks times chunks of channels; block k leaves its (p, q) in partial[k]. Wide rows are
// read one at a time if the chunk has all channels, because processors fetch ahead what is read in order: pieces of
// several rows of a page halve the rate. The second sweep finds a leaf in the cache.
template <class T, class Leaf>
void reduce_blocks(const Leaf& leaf, int64_t rows, int64_t channels, int64_t chunk, T* partial, int64_t begin,
                   int64_t end) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  alignas(64) T found[kBlockLeaves * 2 * kMostChannels];
  const int64_t chunks = (channels + chunk - 1) / chunk;
  for (int64_t task = begin; task < end; ++task) {
    const int64_t block = task / chunks, row = block * kTreeBlock, n = std::min(kTreeBlock, rows - row);
    const int64_t c_begin = task % chunks * chunk, c_end = std::min(channels, c_begin + chunk);
    const int64_t width = (c_end - c_begin + kLanes - 1) / kLanes * kLanes, stride = 2 * width;
    const bool wide = width > 8 * kLanes, in_order = wide && chunks == 1 && channels >= kWideRow;
    const int64_t together = (wide ? 1 : kSideBySide) * kColumnLeaf, again = wide ? kPiece : together,
                  piece = in_order ? 1 : again;
    std::fill_n(found, (n + kColumnLeaf - 1) / kColumnLeaf * stride, T{0});
    for (int64_t r = 0; r < n; r += together) {
      T* p = found + r / kColumnLeaf * stride;
      const int64_t some = std::min(together, n - r);
      sweep<0>(leaf, row + r, some, piece, c_begin, c_end, p, p + width, stride);
      if constexpr (Leaf::kSweeps == 2) sweep<1>(leaf, row + r, some, again, c_begin, c_end, p, p + width, stride);
    }
    T* out = partial + block * 2 * channels;
    for (int64_t c = c_begin; c < c_end; c += kLanes) {
      T* at = found + (c - c_begin);
      reduce_leaves<typename Leaf::Merge>(n, at, at + width, stride);
      Vec<T>::load(at).store(out + c, c_end - c);
      Vec<T>::load(at + width).store(out + channels + c, c_end - c);
    }
  }
}

// Reduces the upper levels of the tree, over blocks, for channels [begin, end), in place.
template <class Merge, class T>
void reduce_tree(int64_t rows, int64_t channels, T* partial, int64_t begin, int64_t end) {
  using V = Vec<T>;
  int64_t span = kTreeBlock;
  for (int64_t width = (rows + span - 1) / span; width > 1; width = (width + 1) / 2, span *= 2) {
    for (int64_t i = 0; i < (width + 1) / 2; ++i) {
      T* to = partial + i * 2 * channels;
      const T* a = partial + 2 * i * 2 * channels;
      const bool odd = 2 * i + 1 == width;
      const T* b = odd ? a : a + 2 * channels;
      const T na = static_cast<T>(span), nb = static_cast<T>(std::min(span, rows - (2 * i + 1) * span));
      for (int64_t c = begin; c < end; c += V::kLanes) {
        const int64_t count = end - c;
        V p = V::load(a + c, count), q = V::load(a + channels + c, count);
        if (!odd) Merge{}(p, q, na, V::load(b + c, count), V::load(b + channels + c, count), nb);
        p.store(to + c, count);
        q.store(to + channels + c, count);
      }
    }
  }
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
