#include "tensor/ops/batch_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/batch_norm.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/numerics.h"
#include "tensor/op_check.h"
#include "tensor/simd-inl.h"

#ifndef ELINVAR_TENSOR_OPS_BATCH_NORM_ONCE_
#define ELINVAR_TENSOR_OPS_BATCH_NORM_ONCE_
namespace elinvar {

constexpr int64_t kBlockLeaves = kBatchNormBlock / kColumnLeaf;
constexpr int64_t kChannelChunk = 128;  // channels of a task: bounds what a block keeps in the cache

// Element-by-element passes see x as rows of `period` elements, a multiple of C long enough for vectors, and the
// factors of the channels repeated to that length.
struct BatchNormForwardPass {
  In x, residual, a, b;
  Out y;
  int64_t period, size;
  bool relu;
};
struct BatchNormBackwardPass {
  In dy, x, y, mean, a, b, mean_g, slope;  // slope = -((sum_gx / n) * inv)
  Out dx;
  int64_t period, size;
  ReluMask mask;
  bool evaluation;
};

}  // namespace elinvar
#endif

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T, bool kPartial>
HWY_INLINE Vec<T> load_some(const T* p, int64_t count) {
  if constexpr (kPartial) return Vec<T>::load(p, count);
  else return Vec<T>::load(p);
}

// What the two column passes have in common: each leaf and channel has two values (p, q), merged by a tree.
// Leaf::leaves<S, L, kPartial> computes L leaves of `rows` rows each for S vectors of channels from c on, side by
// side so that the chains of narrow images overlap; Leaf::merge joins two neighbours of nA and nB rows.
constexpr int64_t kSideBySide = 4;

template <int S, bool kPartial, class T, class Leaf>
void fold_block(const Leaf& leaf, int64_t row, int64_t rows, int64_t c, int64_t count, T* out_p, T* out_q) {
  using V = Vec<T>;
  constexpr int L = kSideBySide / S;
  V p[kBlockLeaves][S], q[kBlockLeaves][S];
  T n[kBlockLeaves];
  const int64_t leaves = (rows + kColumnLeaf - 1) / kColumnLeaf;
  int64_t k = 0;
  for (; (k + L) * kColumnLeaf <= rows; k += L)
    leaf.template leaves<S, L, kPartial>(row + k * kColumnLeaf, kColumnLeaf, c, count, p + k, q + k);
  for (; k < leaves; ++k)
    leaf.template leaves<S, 1, kPartial>(row + k * kColumnLeaf, std::min(kColumnLeaf, rows - k * kColumnLeaf), c, count,
                                         p + k, q + k);
  for (k = 0; k < leaves; ++k) n[k] = static_cast<T>(std::min(kColumnLeaf, rows - k * kColumnLeaf));
  for (int64_t width = leaves; width > 1; width = (width + 1) / 2) {
    for (int64_t i = 0; i < width / 2; ++i) {
      for (int s = 0; s < S; ++s) {
        V pa = p[2 * i][s], qa = q[2 * i][s];
        leaf.merge(pa, qa, n[2 * i], p[2 * i + 1][s], q[2 * i + 1][s], n[2 * i + 1]);
        p[i][s] = pa;
        q[i][s] = qa;
      }
      n[i] = n[2 * i] + n[2 * i + 1];
    }
    if (width % 2 == 1) {
      for (int s = 0; s < S; ++s) {
        p[width / 2][s] = p[width - 1][s];
        q[width / 2][s] = q[width - 1][s];
      }
      n[width / 2] = n[width - 1];
    }
  }
  for (int s = 0; s < S; ++s) {
    if constexpr (kPartial) {
      p[0][s].store(out_p + c, count);
      q[0][s].store(out_q + c, count);
    } else {
      p[0][s].store(out_p + c + s * V::kLanes);
      q[0][s].store(out_q + c + s * V::kLanes);
    }
  }
}

// Tasks [begin, end) of blocks times chunks of channels; block k leaves its (p, q) in partial[k].
template <class T, class Leaf>
void fold_blocks(const Leaf& leaf, int64_t rows, int64_t channels, T* partial, int64_t begin, int64_t end) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  const int64_t chunks = (channels + kChannelChunk - 1) / kChannelChunk;
  for (int64_t task = begin; task < end; ++task) {
    const int64_t block = task / chunks, row = block * kBatchNormBlock, n = std::min(kBatchNormBlock, rows - row);
    int64_t c = task % chunks * kChannelChunk;
    const int64_t c_end = std::min(channels, c + kChannelChunk);
    T* p = partial + block * 2 * channels;
    T* q = p + channels;
    for (; c + 4 * kLanes <= c_end; c += 4 * kLanes) fold_block<4, false>(leaf, row, n, c, 0, p, q);
    for (; c + 2 * kLanes <= c_end; c += 2 * kLanes) fold_block<2, false>(leaf, row, n, c, 0, p, q);
    for (; c + kLanes <= c_end; c += kLanes) fold_block<1, false>(leaf, row, n, c, 0, p, q);
    if (c < c_end) fold_block<1, true>(leaf, row, n, c, c_end - c, p, q);
  }
}

// The upper levels of the tree, over blocks, for channels [begin, end), in place.
template <class T, class Leaf>
void fold_tree(const Leaf& leaf, int64_t rows, int64_t channels, T* partial, int64_t begin, int64_t end) {
  using V = Vec<T>;
  int64_t span = kBatchNormBlock;
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
        if (!odd) leaf.merge(p, q, na, V::load(b + c, count), V::load(b + channels + c, count), nb);
        p.store(to + c, count);
        q.store(to + channels + c, count);
      }
    }
  }
}

// p: mean; q: M2.
template <class T>
struct Moments {
  using V = Vec<T>;
  const T* x;
  int64_t channels;

  template <int S, int L, bool kPartial>
  HWY_INLINE void leaves(int64_t row, int64_t rows, int64_t c, int64_t count, V (*p)[S], V (*q)[S]) const {
    const T* at = x + row * channels + c;
    V acc[L][S], m[L][S];
    for (int l = 0; l < L; ++l)
      for (int s = 0; s < S; ++s) acc[l][s] = V::set(T{0});
    for (int64_t r = 0; r < rows; ++r)
      for (int l = 0; l < L; ++l)
        for (int s = 0; s < S; ++s)
          acc[l][s] = acc[l][s] + load_some<T, kPartial>(at + (l * kColumnLeaf + r) * channels + s * V::kLanes, count);
    const V n = V::set(static_cast<T>(rows));
    for (int l = 0; l < L; ++l) {
      for (int s = 0; s < S; ++s) {
        m[l][s] = acc[l][s] / n;
        acc[l][s] = V::set(T{0});
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int l = 0; l < L; ++l) {
        for (int s = 0; s < S; ++s) {
          const V d = load_some<T, kPartial>(at + (l * kColumnLeaf + r) * channels + s * V::kLanes, count) - m[l][s];
          acc[l][s] = fma(d, d, acc[l][s]);
        }
      }
    }
    for (int l = 0; l < L; ++l) {
      for (int s = 0; s < S; ++s) {
        p[l][s] = m[l][s];
        q[l][s] = acc[l][s];
      }
    }
  }

  HWY_INLINE void merge(V& ma, V& m2a, T na, V mb, V m2b, T nb) const {
    const T w = nb / (na + nb);
    const V d = mb - ma;
    ma = fma(d, V::set(w), ma);
    m2a = (m2a + m2b) + (d * d) * V::set(na * w);
  }
};

// dy where the relu let something through.
template <ReluMask kMask, class V>
HWY_INLINE V masked(V dy, V x, V y, V a, V b) {
  const V zero = V::set(0);
  if constexpr (kMask == ReluMask::from_x) return select(fma(x, a, b) <= zero, zero, dy);
  else if constexpr (kMask == ReluMask::from_y) return select(y <= zero, zero, dy);
  else return dy;
}

// p: the sum of g; q: the sum of g * xhat.
template <class T, ReluMask kMask, bool kWrite>
struct GradientSums {
  using V = Vec<T>;
  const T *dy, *x, *y, *mean, *inv, *a, *b;
  T* g;
  int64_t channels;

  template <int S, int L, bool kPartial>
  HWY_INLINE void leaves(int64_t row, int64_t rows, int64_t c, int64_t count, V (*p)[S], V (*q)[S]) const {
    V m[S], scale[S], va[S], vb[S], sum[L][S], sum_x[L][S];
    for (int s = 0; s < S; ++s) {
      const int64_t at = c + s * V::kLanes;
      m[s] = load_some<T, kPartial>(mean + at, count);
      scale[s] = load_some<T, kPartial>(inv + at, count);
      va[s] = vb[s] = m[s];
      if constexpr (kMask == ReluMask::from_x) {
        va[s] = load_some<T, kPartial>(a + at, count);
        vb[s] = load_some<T, kPartial>(b + at, count);
      }
      for (int l = 0; l < L; ++l) sum[l][s] = sum_x[l][s] = V::set(T{0});
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int l = 0; l < L; ++l) {
        for (int s = 0; s < S; ++s) {
          const int64_t at = (row + l * kColumnLeaf + r) * channels + c + s * V::kLanes;
          const V vx = load_some<T, kPartial>(x + at, count), vdy = load_some<T, kPartial>(dy + at, count);
          V vy = vx;
          if constexpr (kMask == ReluMask::from_y) vy = load_some<T, kPartial>(y + at, count);
          const V vg = masked<kMask>(vdy, vx, vy, va[s], vb[s]);
          if constexpr (kWrite) {
            if constexpr (kPartial) vg.store(g + at, count);
            else vg.store(g + at);
          }
          sum[l][s] = sum[l][s] + vg;
          sum_x[l][s] = fma(vg, (vx - m[s]) * scale[s], sum_x[l][s]);
        }
      }
    }
    for (int l = 0; l < L; ++l) {
      for (int s = 0; s < S; ++s) {
        p[l][s] = sum[l][s];
        q[l][s] = sum_x[l][s];
      }
    }
  }

  HWY_INLINE void merge(V& pa, V& qa, T, V pb, V qb, T) const {
    pa = pa + pb;
    qa = qa + qb;
  }
};

template <class Visit>
void visit_moments(const BatchStatisticsArgs& a, Visit visit) {
  visit_float(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    visit(Moments<T>{a.x.as<T>(), a.channels}, a.partial.as<T>());
  });
}

template <class Visit>
void visit_sums(const BatchNormSumsArgs& a, Visit visit) {
  visit_float(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto with = [&](auto leaf) {
      leaf = {a.dy.as<T>(), a.x.as<T>(), a.y.as<T>(), a.mean.as<T>(), a.inv.as<T>(),
              a.a.as<T>(),  a.b.as<T>(), a.g.as<T>(), a.channels};
      visit(leaf, a.partial.as<T>());
    };
    const bool write = a.g.data != nullptr;
    if (a.mask == ReluMask::from_y && write) with(GradientSums<T, ReluMask::from_y, true>{});
    else if (a.mask == ReluMask::from_y) with(GradientSums<T, ReluMask::from_y, false>{});
    else if (a.mask == ReluMask::from_x && write) with(GradientSums<T, ReluMask::from_x, true>{});
    else if (a.mask == ReluMask::from_x) with(GradientSums<T, ReluMask::from_x, false>{});
    else if (write) with(GradientSums<T, ReluMask::none, true>{});
    else with(GradientSums<T, ReluMask::none, false>{});
  });
}

void batch_statistics_blocks(const BatchStatisticsArgs& a, int64_t begin, int64_t end) {
  visit_moments(a, [&](const auto& leaf, auto* partial) { fold_blocks(leaf, a.rows, a.channels, partial, begin, end); });
}
void batch_statistics_tree(const BatchStatisticsArgs& a, int64_t begin, int64_t end) {
  visit_moments(a, [&](const auto& leaf, auto* partial) { fold_tree(leaf, a.rows, a.channels, partial, begin, end); });
}
void batch_norm_sums_blocks(const BatchNormSumsArgs& a, int64_t begin, int64_t end) {
  visit_sums(a, [&](const auto& leaf, auto* partial) { fold_blocks(leaf, a.rows, a.channels, partial, begin, end); });
}
void batch_norm_sums_tree(const BatchNormSumsArgs& a, int64_t begin, int64_t end) {
  visit_sums(a, [&](const auto& leaf, auto* partial) { fold_tree(leaf, a.rows, a.channels, partial, begin, end); });
}

// Calls step(offset of the element, offset of its channel's factors, count) for the vectors of rows [begin, end),
// a `count` of kLanes being known at compile time.
template <class T, class Step>
HWY_INLINE void each_vector(int64_t period, int64_t size, int64_t begin, int64_t end, Step step) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * period, n = std::min(period, size - first);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) step(first + i, i, std::integral_constant<int64_t, kLanes>());
    if (i < n) step(first + i, i, n - i);
  }
}

template <class T, bool kResidual, bool kRelu>
void forward_rows(const BatchNormForwardPass& f, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const T *x = f.x.as<T>(), *residual = f.residual.as<T>(), *a = f.a.as<T>(), *b = f.b.as<T>();
  T* y = f.y.as<T>();
  const V zero = V::set(T{0});
  each_vector<T>(f.period, f.size, begin, end, [&](int64_t at, int64_t c, auto count) {
    V v = fma(V::load(x + at, count), V::load(a + c, count), V::load(b + c, count));
    if constexpr (kResidual) v = v + V::load(residual + at, count);
    if constexpr (kRelu) v = select(v <= zero, zero, v);
    v.store(y + at, count);
  });
}

void batch_norm_forward_rows(const BatchNormForwardPass& f, int64_t begin, int64_t end) {
  visit_float(f.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool residual = f.residual.data != nullptr;
    if (residual && f.relu) forward_rows<T, true, true>(f, begin, end);
    else if (residual) forward_rows<T, true, false>(f, begin, end);
    else if (f.relu) forward_rows<T, false, true>(f, begin, end);
    else forward_rows<T, false, false>(f, begin, end);
  });
}

template <class T, ReluMask kMask, bool kEvaluation>
void backward_rows(const BatchNormBackwardPass& f, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const T *dy = f.dy.as<T>(), *x = f.x.as<T>(), *y = f.y.as<T>(), *mean = f.mean.as<T>(), *a = f.a.as<T>(),
          *b = f.b.as<T>(), *mean_g = f.mean_g.as<T>(), *slope = f.slope.as<T>();
  T* dx = f.dx.as<T>();
  each_vector<T>(f.period, f.size, begin, end, [&](int64_t at, int64_t c, auto count) {
    const V va = V::load(a + c, count);
    V vx = va, vy = va, vb = va;
    if constexpr (!kEvaluation || kMask == ReluMask::from_x) vx = V::load(x + at, count);
    if constexpr (kMask == ReluMask::from_x) vb = V::load(b + c, count);
    if constexpr (kMask == ReluMask::from_y) vy = V::load(y + at, count);
    const V g = masked<kMask>(V::load(dy + at, count), vx, vy, va, vb);
    if constexpr (kEvaluation) {
      (g * va).store(dx + at, count);
    } else {
      const V e = g - V::load(mean_g + c, count);
      (va * fma(vx - V::load(mean + c, count), V::load(slope + c, count), e)).store(dx + at, count);
    }
  });
}

void batch_norm_backward_rows(const BatchNormBackwardPass& f, int64_t begin, int64_t end) {
  visit_float(f.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto with = [&]<ReluMask kMask>() {
      if (f.evaluation) backward_rows<T, kMask, true>(f, begin, end);
      else backward_rows<T, kMask, false>(f, begin, end);
    };
    if (f.mask == ReluMask::from_x) with.template operator()<ReluMask::from_x>();
    else if (f.mask == ReluMask::from_y) with.template operator()<ReluMask::from_y>();
    else with.template operator()<ReluMask::none>();
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

namespace elinvar {

HWY_EXPORT(batch_statistics_blocks);
HWY_EXPORT(batch_statistics_tree);
HWY_EXPORT(batch_norm_sums_blocks);
HWY_EXPORT(batch_norm_sums_tree);
HWY_EXPORT(batch_norm_forward_rows);
HWY_EXPORT(batch_norm_backward_rows);

namespace {

constexpr int64_t kGrain = 16384;  // elements a thread should have at least

int64_t blocks_of(int64_t rows) { return (rows + kBatchNormBlock - 1) / kBatchNormBlock; }

int64_t tasks_of(int64_t rows, int64_t channels) {
  return blocks_of(rows) * ((channels + kChannelChunk - 1) / kChannelChunk);
}

int64_t period_of(int64_t channels) { return channels * std::max<int64_t>(1, 256 / channels); }

template <class T>
std::vector<T> repeated(const T* values, int64_t channels) {
  std::vector<T> all(static_cast<size_t>(period_of(channels)));
  for (size_t i = 0; i < all.size(); ++i) all[i] = values[i % static_cast<size_t>(channels)];
  return all;
}

template <class T>
In in(const std::vector<T>& v) { return {v.data(), dtype_of<T>()}; }

int64_t channels_of(const char* op, const Tensor& x) {
  check_float(op, x);
  check(x.ndim() >= 2 && x.numel() > 0, "[{}] an input (.., C) with elements expected, shape is {}", op, to_string(x.shape()));
  return x.dim(-1);
}

void check_channels(const char* op, const Tensor& v, const char* name, int64_t channels, DType dtype) {
  check(v.shape() == Shape{channels} && v.dtype() == dtype, "[{}] {} must be {} of shape ({}), got {} of shape {}", op, name,
        name_of(dtype), channels, name_of(v.dtype()), to_string(v.shape()));
}

}  // namespace

void batch_statistics(CpuStream& stream, const BatchStatisticsArgs& a) {
  stream.parallel_for(tasks_of(a.rows, a.channels), 1,
                      [&](int64_t b, int64_t e) { HWY_DYNAMIC_DISPATCH(batch_statistics_blocks)(a, b, e); });
  stream.parallel_for(a.channels, kGrain / blocks_of(a.rows) + 1,
                      [&](int64_t b, int64_t e) { HWY_DYNAMIC_DISPATCH(batch_statistics_tree)(a, b, e); });
  visit_float(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* partial = a.partial.as<T>();
    for (int64_t c = 0; c < a.channels; ++c) {
      a.mean.as<T>()[c] = partial[c];
      a.var.as<T>()[c] = partial[a.channels + c] / static_cast<T>(a.rows);
    }
  });
}

void batch_norm_sums(CpuStream& stream, const BatchNormSumsArgs& a) {
  stream.parallel_for(tasks_of(a.rows, a.channels), 1,
                      [&](int64_t b, int64_t e) { HWY_DYNAMIC_DISPATCH(batch_norm_sums_blocks)(a, b, e); });
  stream.parallel_for(a.channels, kGrain / blocks_of(a.rows) + 1,
                      [&](int64_t b, int64_t e) { HWY_DYNAMIC_DISPATCH(batch_norm_sums_tree)(a, b, e); });
  visit_float(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* partial = a.partial.as<T>();
    for (int64_t c = 0; c < a.channels; ++c) {
      a.sum_g.as<T>()[c] = T{0} + partial[c];
      a.sum_gx.as<T>()[c] = T{0} + partial[a.channels + c];
    }
  });
}

void batch_norm_apply(CpuStream& stream, const BatchNormApplyArgs& args) {
  visit_float(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = repeated(args.a.as<T>(), args.channels), b = repeated(args.b.as<T>(), args.channels);
    const int64_t period = period_of(args.channels), size = args.rows * args.channels;
    const BatchNormForwardPass pass{args.x, args.residual, in(a), in(b), args.y, period, size, args.relu};
    stream.parallel_for((size + period - 1) / period, kGrain / period + 1,
                        [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(batch_norm_forward_rows)(pass, begin, end); });
  });
}

void batch_norm_gradient(CpuStream& stream, const BatchNormGradientArgs& args) {
  visit_float(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t channels = args.channels, period = period_of(channels), size = args.rows * channels;
    const bool evaluation = args.sum_g.data == nullptr;
    std::vector<T> mean_g(static_cast<size_t>(channels)), slope(static_cast<size_t>(channels));
    for (int64_t c = 0; !evaluation && c < channels; ++c) {
      const T n = static_cast<T>(args.rows);
      mean_g[static_cast<size_t>(c)] = args.sum_g.as<T>()[c] / n;
      slope[static_cast<size_t>(c)] = -((args.sum_gx.as<T>()[c] / n) * args.inv.as<T>()[c]);
    }
    mean_g = repeated(mean_g.data(), channels);
    slope = repeated(slope.data(), channels);
    const auto mean = repeated(args.mean.as<T>(), channels), a = repeated(args.a.as<T>(), channels),
               b = repeated(args.b.as<T>(), channels);
    const BatchNormBackwardPass pass{args.dy, args.x, args.y, in(mean), in(a), in(b), in(mean_g), in(slope),
                                     args.dx, period, size, args.mask, evaluation};
    stream.parallel_for((size + period - 1) / period, kGrain / period + 1,
                        [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(batch_norm_backward_rows)(pass, begin, end); });
  });
}

BatchStatistics batch_statistics(const Tensor& input) {
  const int64_t channels = channels_of("batch_norm", input), rows = input.numel() / channels;
  const Tensor x = input.to_contiguous();
  BatchStatistics s{Tensor::empty({channels}, x.dtype(), x.device()), Tensor::empty({channels}, x.dtype(), x.device()), rows};
  Tensor partial = Tensor::empty({blocks_of(rows), 2, channels}, x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    batch_statistics(stream, BatchStatisticsArgs{in(x), out(s.mean), out(s.var), out(partial), rows, channels});
  });
  return s;
}

BatchNormFactors batch_norm_factors(const Tensor& mean, const Tensor& var, const Tensor& gamma, const Tensor& beta,
                                    double eps) {
  check_float("batch_norm", mean);
  check(mean.ndim() == 1, "[batch_norm] a mean of shape (C) expected, got {}", to_string(mean.shape()));
  const int64_t channels = mean.dim(0);
  check_channels("batch_norm", var, "the variance", channels, mean.dtype());
  check_channels("batch_norm", gamma, "gamma", channels, mean.dtype());
  check_channels("batch_norm", beta, "beta", channels, mean.dtype());
  BatchNormFactors f{mean.to_contiguous(), Tensor::empty({channels}, mean.dtype()), Tensor::empty({channels}, mean.dtype()),
                     Tensor::empty({channels}, mean.dtype())};
  visit_float(mean.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor v = var.to_contiguous(), g = gamma.to_contiguous(), bias = beta.to_contiguous();
    const T *pm = std::as_const(f.mean).template data<T>(), *pv = v.data<T>(), *pg = g.data<T>(), *pb = bias.data<T>();
    T *inv = f.inv.data<T>(), *a = f.a.data<T>(), *b = f.b.data<T>();
    for (int64_t c = 0; c < channels; ++c) {
      inv[c] = T{1} / std::sqrt(pv[c] + static_cast<T>(eps));
      a[c] = pg[c] * inv[c];
      b[c] = std::fma(-pm[c], a[c], pb[c]);
    }
  });
  return f;
}

Tensor batch_norm_apply(const Tensor& input, const BatchNormFactors& f, const Tensor& residual, bool relu) {
  const int64_t channels = channels_of("batch_norm", input);
  check_channels("batch_norm", f.a, "the factors", channels, input.dtype());
  const Tensor x = input.to_contiguous();
  Tensor r;
  if (residual.defined()) {
    check_same_shape("batch_norm", x, residual);
    check_same_dtype("batch_norm", x, residual);
    r = residual.to_contiguous();
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    batch_norm_apply(stream, BatchNormApplyArgs{in(x), r.defined() ? in(r) : In{}, in(f.a), in(f.b), out(y),
                                                x.numel() / channels, channels, relu});
  });
  return y;
}

BatchNormSums batch_norm_sums(const Tensor& dy, const Tensor& input, const Tensor& y, const BatchNormFactors& f,
                              ReluMask mask, bool want_g) {
  check_same_shape("batch_norm_sums", dy, input);
  const int64_t channels = channels_of("batch_norm_sums", input), rows = input.numel() / channels;
  const Tensor g = dy.to_contiguous(), x = input.to_contiguous();
  BatchNormSums sums{Tensor::empty({channels}, x.dtype(), x.device()), Tensor::empty({channels}, x.dtype(), x.device()), {}};
  if (want_g) sums.g = Tensor::empty(x.shape(), x.dtype(), x.device());
  Tensor partial = Tensor::empty({blocks_of(rows), 2, channels}, x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    batch_norm_sums(stream, BatchNormSumsArgs{in(g), in(x), mask == ReluMask::from_y ? in(y) : In{}, in(f.mean), in(f.inv),
                                              in(f.a), in(f.b), out(sums.sum_g), out(sums.sum_gx), out(partial),
                                              want_g ? out(sums.g) : Out{}, rows, channels, mask});
  });
  return sums;
}

Tensor batch_norm_gradient(const Tensor& dy, const Tensor& input, const Tensor& y, const BatchNormFactors& f,
                           const BatchNormSums* sums, ReluMask mask) {
  check_same_shape("batch_norm_gradient", dy, input);
  const int64_t channels = channels_of("batch_norm_gradient", input);
  const Tensor g = dy.to_contiguous(), x = input.to_contiguous();
  Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    batch_norm_gradient(stream, BatchNormGradientArgs{in(g), in(x), mask == ReluMask::from_y ? in(y) : In{}, in(f.mean),
                                                      in(f.inv), in(f.a), in(f.b), sums ? in(sums->sum_g) : In{},
                                                      sums ? in(sums->sum_gx) : In{}, out(dx), x.numel() / channels,
                                                      channels, mask});
  });
  return dx;
}

}  // namespace elinvar
#endif
