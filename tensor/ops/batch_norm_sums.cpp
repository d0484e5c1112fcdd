#include "tensor/ops/batch_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/batch_norm_sums.cpp"
#include <hwy/foreach_target.h>

#include "tensor/leaf_tree-inl.h"
#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/trace.h"
#include "tensor/ops/batch_norm-inl.h"
HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T, bool kPartial>
HWY_INLINE Vec<T> load_some(const T* p, int64_t count) {
  if constexpr (kPartial) return Vec<T>::load(p, count);
  else return Vec<T>::load(p);
}

template <class T>
struct MergeMoments {
  using V = Vec<T>;
  HWY_INLINE void operator()(V& ma, V& m2a, T na, V mb, V m2b, T nb) const {
    merge_moments<T>(ma, m2a, na, mb, m2b, nb);
  }
};

// p is the sum and then the mean; q is M2.
template <class T>
struct Moments {
  using V = Vec<T>;
  using Merge = MergeMoments<T>;
  static constexpr int kSweeps = 2;
  const T* x;
  int64_t channels;

  template <int kSweep, int S, int L, bool kPartial>
  HWY_INLINE void add(int64_t row, int64_t rows, int64_t c, int64_t count, T* p, T* q, int64_t stride) const {
    const T* at = x + row * channels + c;
    T* to = kSweep == 0 ? p : q;
    V acc[L][S], m[L][S];
    for (int l = 0; l < L; ++l) {
      for (int s = 0; s < S; ++s) {
        acc[l][s] = V::load(to + l * stride + s * V::kLanes);
        m[l][s] = V::load(p + l * stride + s * V::kLanes);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int l = 0; l < L; ++l) {
        for (int s = 0; s < S; ++s) {
          const V v = load_some<T, kPartial>(at + (l * kColumnLeaf + r) * channels + s * V::kLanes, count);
          if constexpr (kSweep == 0) {
            acc[l][s] = acc[l][s] + v;
          } else {
            const V d = v - m[l][s];
            acc[l][s] = fma(d, d, acc[l][s]);
          }
        }
      }
    }
    for (int l = 0; l < L; ++l)
      for (int s = 0; s < S; ++s) acc[l][s].store(to + l * stride + s * V::kLanes);
  }

  template <int kSweep>
  HWY_INLINE V close(V p, T n) const {
    return kSweep == 0 ? p / V::set(n) : p;
  }
};

template <class T>
struct MergeSums {
  using V = Vec<T>;
  HWY_INLINE void operator()(V& pa, V& qa, T, V pb, V qb, T) const {
    pa = pa + pb;
    qa = qa + qb;
  }
};

// p is the sum of g; q is the sum of g * xhat.
template <class T, ReluMask kMask, bool kWrite>
struct GradientSums {
  using V = Vec<T>;
  using Merge = MergeSums<T>;
  static constexpr int kSweeps = 1;
  const T *dy, *x, *y;
  const uint8_t* bits;  // of y
  const T *mean, *inv, *a, *b;
  T* g;
  int64_t channels;

  template <int kSweep, int S, int L, bool kPartial>
  HWY_INLINE void add(int64_t row, int64_t rows, int64_t c, int64_t count, T* p, T* q, int64_t stride) const {
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
      for (int l = 0; l < L; ++l) {
        sum[l][s] = V::load(p + l * stride + s * V::kLanes);
        sum_x[l][s] = V::load(q + l * stride + s * V::kLanes);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int l = 0; l < L; ++l) {
        for (int s = 0; s < S; ++s) {
          const int64_t at = (row + l * kColumnLeaf + r) * channels + c + s * V::kLanes;
          const V vx = load_some<T, kPartial>(x + at, count), vdy = load_some<T, kPartial>(dy + at, count);
          V vy = vx;
          if constexpr (kMask == ReluMask::from_y) vy = load_some<T, kPartial>(y + at, count);
          if constexpr (kMask == ReluMask::from_bits) vy = passed<V>(bits, at);
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
        sum[l][s].store(p + l * stride + s * V::kLanes);
        sum_x[l][s].store(q + l * stride + s * V::kLanes);
      }
    }
  }

  template <int kSweep>
  HWY_INLINE V close(V p, T) const {
    return p;
  }
};

template <class Visit>
void visit_sums(const BatchNormSumsArgs& a, Visit visit) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto with = [&](auto leaf) {
      leaf = {a.dy.as<T>(),  a.x.as<T>(), a.y.as<T>(), a.y.as<uint8_t>(), a.mean.as<T>(),
              a.inv.as<T>(), a.a.as<T>(), a.b.as<T>(), a.g.as<T>(),       a.channels};
      visit(leaf, a.partial.as<T>());
    };
    const bool write = a.g.data != nullptr;
    if (a.mask == ReluMask::from_y && write) with(GradientSums<T, ReluMask::from_y, true>{});
    else if (a.mask == ReluMask::from_y) with(GradientSums<T, ReluMask::from_y, false>{});
    else if (a.mask == ReluMask::from_bits && write) with(GradientSums<T, ReluMask::from_bits, true>{});
    else if (a.mask == ReluMask::from_bits) with(GradientSums<T, ReluMask::from_bits, false>{});
    else if (a.mask == ReluMask::from_x && write) with(GradientSums<T, ReluMask::from_x, true>{});
    else if (a.mask == ReluMask::from_x) with(GradientSums<T, ReluMask::from_x, false>{});
    else if (write) with(GradientSums<T, ReluMask::none, true>{});
    else with(GradientSums<T, ReluMask::none, false>{});
  });
}

void batch_statistics_blocks(const BatchStatisticsArgs& a, int64_t chunk, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    reduce_blocks(Moments<T>{a.x.as<T>(), a.channels}, a.rows, a.channels, chunk, a.partial.as<T>(), begin, end);
  });
}
void batch_statistics_tree(const BatchStatisticsArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    reduce_tree<MergeMoments<T>>(a.rows, a.channels, a.partial.as<T>(), begin, end);
  });
}
void batch_norm_sums_blocks(const BatchNormSumsArgs& a, int64_t chunk, int64_t begin, int64_t end) {
  visit_sums(
      a, [&](const auto& leaf, auto* partial) { reduce_blocks(leaf, a.rows, a.channels, chunk, partial, begin, end); });
}
void batch_norm_sums_tree(const BatchNormSumsArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    reduce_tree<MergeSums<T>>(a.rows, a.channels, a.partial.as<T>(), begin, end);
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(batch_statistics_blocks);
HWY_EXPORT(batch_statistics_tree);
HWY_EXPORT(batch_norm_sums_blocks);
HWY_EXPORT(batch_norm_sums_tree);

namespace {
constexpr int64_t kGrain = 16384;  // least elements per thread
}

void batch_statistics(CpuStream& stream, const BatchStatisticsArgs& a) {
  const int64_t chunk = channel_chunk(a.rows, stream.threads());
  stream.parallel_for(tree_tasks(a.rows, a.channels, chunk), 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(batch_statistics_blocks, a.x.dtype)(a, chunk, b, e);
  });
  stream.parallel_for(a.channels, kGrain / tree_blocks(a.rows) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(batch_statistics_tree, a.x.dtype)(a, b, e);
  });
  visit_float(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* partial = a.partial.as<T>();
    for (int64_t c = 0; c < a.channels; ++c) {
      a.mean.as<T>()[c] = partial[c];
      a.var.as<T>()[c] = partial[a.channels + c] / static_cast<T>(a.rows);
    }
  });
  if (!a.inv.data) return;
  const auto made = [](const Out& t) { return In{t.data, t.dtype}; };
  batch_norm_factors(
      stream, BatchNormFactorsArgs{made(a.mean), made(a.var), a.gamma, a.beta, a.inv, a.a, a.b, a.channels, a.eps});
}

void batch_norm_sums(CpuStream& stream, const BatchNormSumsArgs& a) {
  const int64_t chunk = channel_chunk(a.rows, stream.threads());
  stream.parallel_for(tree_tasks(a.rows, a.channels, chunk), 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(batch_norm_sums_blocks, a.x.dtype)(a, chunk, b, e);
  });
  stream.parallel_for(a.channels, kGrain / tree_blocks(a.rows) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(batch_norm_sums_tree, a.x.dtype)(a, b, e);
  });
  visit_float(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* partial = a.partial.as<T>();
    for (int64_t c = 0; c < a.channels; ++c) {
      a.sum_g.as<T>()[c] = T{0} + partial[c];
      a.sum_gx.as<T>()[c] = T{0} + partial[a.channels + c];
    }
  });
}

namespace {

// `args` has what is not set here: operands and places of factors, if they are wanted.
BatchStatistics statistics_of(const Tensor& input, BatchStatisticsArgs args) {
  const int64_t channels = batch_norm_channels("batch_norm", input), rows = input.numel() / channels;
  const Tensor x = input.to_contiguous();
  const DType type = computed_in(x.dtype());
  BatchStatistics s{Tensor::empty({channels}, type, x.device()), Tensor::empty({channels}, type, x.device()), rows};
  Tensor partial = Tensor::empty({tree_blocks(rows), 2, channels}, type, x.device());
  args.x = in(x);
  args.mean = out(s.mean);
  args.var = out(s.var);
  args.partial = out(partial);
  args.rows = rows;
  args.channels = channels;
  on(x.device(), [&](auto& stream) { batch_statistics(stream, args); });
  return s;
}

BatchStatistics statistics_alone(const Tensor& x) { return statistics_of(x, {}); }

NormalizedBatch of_batch(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const int64_t channels = batch_norm_channels("batch_norm", x);
  const Tensor g = operand("batch_norm", "gamma", gamma, {channels}, x),
               b = operand("batch_norm", "beta", beta, {channels}, x);
  const auto empty = [&] { return Tensor::empty({channels}, g.dtype(), x.device()); };
  BatchNormFactors f{{}, empty(), empty(), empty()};
  BatchStatisticsArgs args{};
  args.gamma = in(g);
  args.beta = in(b);
  args.inv = out(f.inv);
  args.a = out(f.a);
  args.b = out(f.b);
  args.eps = eps;
  const BatchStatistics s = statistics_of(x, args);
  f.mean = s.mean;
  return {s, std::move(f)};
}

BatchNormSums sums_of(Tensor dy, const Tensor& input, const Tensor& result, const BatchNormFactors& factors,
                      ReluMask mask, bool want_g) {
  const BatchNormFactors f = batch_norm_gradient_operands("batch_norm_sums", dy, input, result, factors, mask);
  const int64_t channels = input.dim(-1), rows = input.numel() / channels;
  const Tensor x = input.to_contiguous(), y = relu_mask_operand(result, mask);
  dy = dy.to_contiguous();
  const In from = in(dy);
  const DType type = computed_in(x.dtype());
  BatchNormSums sums{Tensor::empty({channels}, type, x.device()), Tensor::empty({channels}, type, x.device()), {}};
  if (want_g) sums.g = onto(dy);
  Tensor partial = Tensor::empty({tree_blocks(rows), 2, channels}, type, x.device());
  on(x.device(), [&](auto& stream) {
    batch_norm_sums(stream, BatchNormSumsArgs{from, in(x), y.defined() ? in(y) : In{}, in(f.mean), in(f.inv), in(f.a),
                                              in(f.b), out(sums.sum_g), out(sums.sum_gx), out(partial),
                                              want_g ? out(sums.g) : Out{}, rows, channels, mask});
  });
  return sums;
}

const Op kStatistics("batch_statistics(x)", statistics_alone);
const Op kOfBatch("batch_norm_of_batch(x, gamma, beta, eps)", of_batch);
const Op kSums("batch_norm_sums(dy, x, y, factors, mask, want_g)", sums_of);

}  // namespace

BatchStatistics batch_statistics(const Tensor& x) { return kStatistics(x); }

NormalizedBatch batch_norm_of_batch(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  return kOfBatch(x, gamma, beta, eps);
}

BatchNormSums batch_norm_sums(Tensor dy, const Tensor& x, const Tensor& y, const BatchNormFactors& factors,
                              ReluMask mask, bool want_g) {
  return kSums(std::move(dy), x, y, factors, mask, want_g);
}

}  // namespace elinvar
#endif
