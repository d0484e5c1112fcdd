#include "tensor/ops/batch_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/batch_norm.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/ops/batch_norm-inl.h"
#include "tensor/simd-inl.h"
#include "tensor/trace.h"
#ifndef ELINVAR_TENSOR_OPS_BATCH_NORM_ONCE_
#define ELINVAR_TENSOR_OPS_BATCH_NORM_ONCE_
namespace elinvar {

// Element-by-element passes treat x as rows of `period` elements, a multiple of C long enough for vectors; the factors
// of the channels are repeated to that length.
struct BatchNormForwardPass {
  In x, residual, a, b;
  Out y, mask;
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

// Calls step(offset of the element, offset of its channel's factors, count) for the vectors of rows [begin, end). A
// `count` of kLanes is known at compile time.
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

template <class T, bool kResidual, bool kRelu, bool kMask = false>
void forward_rows(const BatchNormForwardPass& f, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const T *x = f.x.as<T>(), *residual = f.residual.as<T>(), *a = f.a.as<T>(), *b = f.b.as<T>();
  T* y = f.y.as<T>();
  auto* mask = f.mask.as<uint8_t>();
  const V zero = V::set(T{0});
  each_vector<T>(f.period, f.size, begin, end, [&](int64_t at, int64_t c, auto count) {
    V v = fma(V::load(x + at, count), V::load(a + c, count), V::load(b + c, count));
    if constexpr (kResidual) v = v + V::load(residual + at, count);
    if constexpr (kMask) store_passed(v <= zero, mask, at, count);
    if constexpr (kRelu) v = select(v <= zero, zero, v);
    v.store(y + at, count);
  });
}

void batch_norm_forward_rows(const BatchNormForwardPass& f, int64_t begin, int64_t end) {
  visit_element(f.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool residual = f.residual.data != nullptr;
    if (f.mask.data) forward_rows<T, true, true, true>(f, begin, end);
    else if (residual && f.relu) forward_rows<T, true, true>(f, begin, end);
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
  const auto* bits = f.y.as<uint8_t>();
  T* dx = f.dx.as<T>();
  each_vector<T>(f.period, f.size, begin, end, [&](int64_t at, int64_t c, auto count) {
    const V va = V::load(a + c, count);
    V vx = va, vy = va, vb = va;
    if constexpr (!kEvaluation || kMask == ReluMask::from_x) vx = V::load(x + at, count);
    if constexpr (kMask == ReluMask::from_x) vb = V::load(b + c, count);
    if constexpr (kMask == ReluMask::from_y) vy = V::load(y + at, count);
    if constexpr (kMask == ReluMask::from_bits) vy = passed<V>(bits, at);
    const V g = masked<kMask>(V::load(dy + at, count), vx, vy, va, vb);
    if constexpr (kEvaluation) {
      (g * va).store(dx + at, count);
    } else {
      gradient_of(g, vx, V::load(mean + c, count), va, V::load(mean_g + c, count), V::load(slope + c, count))
          .store(dx + at, count);
    }
  });
}

void batch_norm_backward_rows(const BatchNormBackwardPass& f, int64_t begin, int64_t end) {
  visit_element(f.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto with = [&]<ReluMask kMask>() {
      if (f.evaluation) backward_rows<T, kMask, true>(f, begin, end);
      else backward_rows<T, kMask, false>(f, begin, end);
    };
    if (f.mask == ReluMask::from_x) with.template operator()<ReluMask::from_x>();
    else if (f.mask == ReluMask::from_y) with.template operator()<ReluMask::from_y>();
    else if (f.mask == ReluMask::from_bits) with.template operator()<ReluMask::from_bits>();
    else with.template operator()<ReluMask::none>();
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

namespace elinvar {

HWY_EXPORT(batch_norm_forward_rows);
HWY_EXPORT(batch_norm_backward_rows);

namespace {

constexpr int64_t kGrain = 16384;  // least elements per thread

int64_t period_of(int64_t channels) { return channels * std::max<int64_t>(1, 256 / channels); }

// The same, and a multiple of 8 elements, so that no byte of a mask is of two periods.
int64_t masked_period_of(int64_t channels) {
  const int64_t period = period_of(channels);
  return period / std::gcd(period, int64_t{8}) * 8;
}

template <class T>
std::vector<T> repeated(const T* values, int64_t channels, int64_t period) {
  std::vector<T> all(static_cast<size_t>(period));
  for (size_t i = 0; i < all.size(); ++i) all[i] = values[i % static_cast<size_t>(channels)];
  return all;
}

template <class T>
In in(const std::vector<T>& v) {
  return {v.data(), dtype_of<T>()};
}

}  // namespace

int64_t batch_norm_channels(const char* op, const Tensor& x) {
  check_activation(op, x);
  check(x.ndim() >= 2 && x.numel() > 0, "[{}] an input (.., C) with elements expected, shape is {}", op,
        to_string(x.shape()));
  return x.dim(-1);
}

BatchNormFactors batch_norm_gradient_operands(const char* op, const Tensor& dy, const Tensor& x, const Tensor& y,
                                              const BatchNormFactors& f, ReluMask mask) {
  const Shape channels{batch_norm_channels(op, x)};
  check_same_shape(op, dy, x);
  check_same_dtype(op, dy, x);
  if (mask == ReluMask::from_y) {
    check_same_shape(op, y, x);
    check_same_dtype(op, y, x);
  }
  if (mask == ReluMask::from_bits) {
    check_float(op, x);
    check(y.dtype() == DType::u8 && y.shape() == Shape{mask_bytes(x.numel())} && y.contiguous(),
          "[{}] the bits of the mask must be uint8 of shape ({},), got {} of shape {}", op, mask_bytes(x.numel()),
          name_of(y.dtype()), to_string(y.shape()));
    check_same_device(op, y, x);
  }
  const auto factor = [&](const Tensor& t) { return operand(op, "the factors", t, channels, x); };
  return {factor(f.mean), factor(f.inv), factor(f.a), factor(f.b)};
}

Tensor relu_mask_operand(const Tensor& y, ReluMask mask) {
  if (mask == ReluMask::from_y) return y.to_contiguous();
  return mask == ReluMask::from_bits ? y : Tensor{};
}

void batch_norm_apply(CpuStream& stream, const BatchNormApplyArgs& args) {
  visit_float(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t period = args.mask.data ? masked_period_of(args.channels) : period_of(args.channels),
                  size = args.rows * args.channels;
    const auto a = repeated(args.a.as<T>(), args.channels, period), b = repeated(args.b.as<T>(), args.channels, period);
    const BatchNormForwardPass pass{args.x, args.residual, in(a), in(b), args.y, args.mask, period, size, args.relu};
    stream.parallel_for((size + period - 1) / period, kGrain / period + 1, [&](int64_t begin, int64_t end) {
      ELINVAR_KERNEL(batch_norm_forward_rows, pass.x.dtype)(pass, begin, end);
    });
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
    const auto whole = [&](const T* values) { return repeated(values, channels, period); };
    mean_g = whole(mean_g.data());
    slope = whole(slope.data());
    const auto mean = whole(args.mean.as<T>()), a = whole(args.a.as<T>()), b = whole(args.b.as<T>());
    const BatchNormBackwardPass pass{args.dy,   args.x,  args.y, in(mean), in(a),     in(b),     in(mean_g),
                                     in(slope), args.dx, period, size,     args.mask, evaluation};
    stream.parallel_for((size + period - 1) / period, kGrain / period + 1, [&](int64_t begin, int64_t end) {
      ELINVAR_KERNEL(batch_norm_backward_rows, pass.dy.dtype)(pass, begin, end);
    });
  });
}

void batch_norm_factors(CpuStream&, const BatchNormFactorsArgs& args) {
  visit_float(args.mean.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *mean = args.mean.as<T>(), *var = args.var.as<T>(), *gamma = args.gamma.as<T>(), *beta = args.beta.as<T>();
    T *inv = args.inv.as<T>(), *a = args.a.as<T>(), *b = args.b.as<T>();
    for (int64_t c = 0; c < args.channels; ++c) {
      inv[c] = T{1} / std::sqrt(var[c] + static_cast<T>(args.eps));
      a[c] = gamma[c] * inv[c];
      b[c] = std::fma(-mean[c], a[c], beta[c]);
    }
  });
}

namespace {

BatchNormFactors factors_of(const Tensor& mean, const Tensor& var, const Tensor& gamma, const Tensor& beta,
                            double eps) {
  check_float("batch_norm", mean);
  check(mean.ndim() == 1, "[batch_norm] a mean of shape (C) expected, got {}", to_string(mean.shape()));
  const int64_t channels = mean.dim(0);
  const Tensor v = operand("batch_norm", "the variance", var, {channels}, mean),
               g = operand("batch_norm", "gamma", gamma, {channels}, mean),
               bias = operand("batch_norm", "beta", beta, {channels}, mean);
  const auto empty = [&] { return Tensor::empty({channels}, mean.dtype(), mean.device()); };
  BatchNormFactors f{mean.to_contiguous(), empty(), empty(), empty()};
  on(mean.device(), [&](auto& stream) {
    batch_norm_factors(stream, BatchNormFactorsArgs{in(f.mean), in(v), in(g), in(bias), out(f.inv), out(f.a), out(f.b),
                                                    channels, eps});
  });
  return f;
}

Tensor applied(const Tensor& input, const BatchNormFactors& f, const Tensor& residual, bool relu, Tensor* mask) {
  const int64_t channels = batch_norm_channels("batch_norm", input);
  const Tensor a = operand("batch_norm", "the factors", f.a, {channels}, input),
               b = operand("batch_norm", "the factors", f.b, {channels}, input);
  const Tensor x = input.to_contiguous();
  Tensor r;
  if (residual.defined()) {
    check_same_shape("batch_norm", x, residual);
    check_same_dtype("batch_norm", x, residual);
    r = residual.to_contiguous();
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    batch_norm_apply(stream, BatchNormApplyArgs{in(x), r.defined() ? in(r) : In{}, in(a), in(b), out(y),
                                                x.numel() / channels, channels, relu, mask ? out(*mask) : Out{}});
  });
  return y;
}

Tensor apply_of(const Tensor& x, const BatchNormFactors& f, const Tensor& residual, bool relu) {
  return applied(x, f, residual, relu, nullptr);
}

BatchNormMasked apply_masked_of(const Tensor& x, const BatchNormFactors& f, const Tensor& residual) {
  check_float("batch_norm_apply_masked", x);
  check(residual.defined(), "[batch_norm_apply_masked] a residual expected: without one the mask follows from x");
  Tensor mask = Tensor::empty({mask_bytes(x.numel())}, DType::u8, x.device());
  Tensor y = applied(x, f, residual, /*relu=*/true, &mask);
  return {std::move(y), std::move(mask)};
}

Tensor gradient_of(Tensor dy, const Tensor& input, const Tensor& result, const BatchNormFactors& factors,
                   const BatchNormSums* sums, ReluMask mask) {
  constexpr const char* kName = "batch_norm_gradient";
  const BatchNormFactors f = batch_norm_gradient_operands(kName, dy, input, result, factors, mask);
  const int64_t channels = input.dim(-1);
  Tensor sum_g, sum_gx;
  if (sums) {
    sum_g = operand(kName, "the sum of g", sums->sum_g, {channels}, input);
    sum_gx = operand(kName, "the sum of g x", sums->sum_gx, {channels}, input);
  }
  const Tensor x = input.to_contiguous(), y = relu_mask_operand(result, mask);
  dy = dy.to_contiguous();
  const In g = in(dy);
  Tensor dx = onto(dy);
  on(x.device(), [&](auto& stream) {
    batch_norm_gradient(
        stream, BatchNormGradientArgs{g, in(x), y.defined() ? in(y) : In{}, in(f.mean), in(f.inv), in(f.a), in(f.b),
                                      sums ? in(sum_g) : In{}, sums ? in(sum_gx) : In{}, out(dx), x.numel() / channels,
                                      channels, mask});
  });
  return dx;
}

const Op kFactors("batch_norm_factors(mean, var, gamma, beta, eps)", factors_of);
const Op kApply("batch_norm_apply(x, factors, residual, relu) -> y", apply_of);
const Op kApplyMasked("batch_norm_apply_masked(x, factors, residual)", apply_masked_of);
const Op kGradient("batch_norm_gradient(dy, x, y, factors, sums, mask) -> dx", gradient_of);

}  // namespace

BatchNormFactors batch_norm_factors(const Tensor& mean, const Tensor& var, const Tensor& gamma, const Tensor& beta,
                                    double eps) {
  return kFactors(mean, var, gamma, beta, eps);
}

Tensor batch_norm_apply(const Tensor& x, const BatchNormFactors& factors, const Tensor& residual, bool relu) {
  return kApply(x, factors, residual, relu);
}

BatchNormMasked batch_norm_apply_masked(const Tensor& x, const BatchNormFactors& factors, const Tensor& residual) {
  return kApplyMasked(x, factors, residual);
}

Tensor batch_norm_gradient(Tensor dy, const Tensor& x, const Tensor& y, const BatchNormFactors& factors,
                           const BatchNormSums* sums, ReluMask mask) {
  return kGradient(std::move(dy), x, y, factors, sums, mask);
}

}  // namespace elinvar
#endif
