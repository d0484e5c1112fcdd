#include "tensor/ops/route.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/route.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/isa.h"
#include "tensor/math-inl.h"
#include "tensor/op_check.h"
#include "tensor/reduce-inl.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T>
HWY_INLINE T exp_of(T x) {
  T lanes[Vec<T>::kLanes];
  exp(Vec<T>::set(x)).store(lanes);
  return lanes[0];
}

// Writes e = exp(x - m) of all n elements, and returns their sum.
template <class T>
T row_exponentials(const T* x, T m, T* e, int64_t n) {
  using V = Vec<T>;
  for (int64_t i = 0; i < n; i += V::kLanes) exp(V::load(x + i, n - i) - V::set(m)).store(e + i, n - i);
  return row_sum<T>(n, [&](int64_t i, int64_t count) { return V::load(e + i, count); });
}

template <class T>
void choose(const RouteArgs& a, const T* x, T* e, int64_t token) {
  int64_t* expert = a.expert.as<int64_t>() + token;
  T* weight = a.weight.as<T>() + token;
  bool numbers = true;
  for (int64_t i = 0; i < a.experts; ++i) numbers = numbers && x[i] == x[i];
  int64_t last = -1;
  for (int64_t j = 0; j < a.chosen; ++j) {
    int64_t best = -1;
    for (int64_t i = 0; i < a.experts; ++i)
      if ((last < 0 || chosen_before(x[last], last, x[i], i)) && (best < 0 || chosen_before(x[i], i, x[best], best)))
        best = i;
    expert[j * a.tokens] = last = best;
  }
  const T m = numbers ? x[expert[0]] : std::numeric_limits<T>::quiet_NaN();
  T l{0};
  if (a.chosen == 1) l = row_exponentials(x, m, e, a.experts);
  for (int64_t j = 0; j < a.chosen; ++j) {
    weight[j * a.tokens] = exp_of<T>(x[expert[j * a.tokens]] - m);
    if (a.chosen > 1) l += weight[j * a.tokens];
  }
  const T r = T{1} / l;
  for (int64_t j = 0; j < a.chosen; ++j) weight[j * a.tokens] *= r;
}

void choose_rows(const RouteArgs& a, int64_t begin, int64_t end) {
  visit_element(a.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> e(static_cast<size_t>(a.experts));
    for (int64_t t = begin; t < end; ++t) choose<T>(a, a.logits.as<T>() + t * a.experts, e.data(), t);
  });
}

template <class T>
void gradient_of_row(const RouteBackwardArgs& a, int64_t token, std::vector<T>& p, std::vector<T>& g) {
  using V = Vec<T>;
  const int64_t n = a.experts;
  const T *x = a.logits.as<T>() + token * n, *dw = a.dweight.as<T>() + token;
  const int64_t *expert = a.expert.as<int64_t>() + token, *start = a.start.as<int64_t>();
  T* dx = a.dlogits.as<T>() + token * n;
  T m = row_max(x, n);
  for (int64_t i = 0; i < n; ++i)
    if (x[i] != x[i]) m = x[i];
  const bool of_all = a.chosen == 1 || a.balance != 0 || a.z != 0;
  if (of_all) {
    const T l = row_exponentials(x, m, p.data(), n);
    const V r = V::set(T{1} / l);
    for (int64_t i = 0; i < n; i += V::kLanes) (V::load(p.data() + i, n - i) * r).store(p.data() + i, n - i);
    for (int64_t i = 0; i < n; ++i)
      g[static_cast<size_t>(i)] = static_cast<T>(start[i + 1] - start[i]) * static_cast<T>(a.balance);
    if (a.chosen == 1)
      for (int64_t i = 0; i < n; ++i)
        if (i == expert[0]) g[static_cast<size_t>(i)] += dw[0];
    const auto load = [&](const std::vector<T>& v) {
      return [&v](int64_t i, int64_t count) { return V::load(v.data() + i, count); };
    };
    const V s = V::set(row_dot<T>(n, load(p), load(g)));
    const V z = a.z == 0 ? V::set(T{0}) : V::set(static_cast<T>(a.z)) * (V::set(m) + log(V::set(l)));
    for (int64_t i = 0; i < n; i += V::kLanes) {
      const V pi = V::load(p.data() + i, n - i);
      fma(z, pi, pi * (V::load(g.data() + i, n - i) - s)).store(dx + i, n - i);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) dx[i] = T{0};
  }
  if (a.chosen == 1) return;
  const T* w = a.weight.as<T>() + token;
  T s{0};
  for (int64_t j = 0; j < a.chosen; ++j) s = std::fma(w[j * a.tokens], dw[j * a.tokens], s);
  for (int64_t j = 0; j < a.chosen; ++j) {
    const int64_t i = expert[j * a.tokens];
    if (i >= 0 && i < n) dx[i] += w[j * a.tokens] * (dw[j * a.tokens] - s);
  }
}

void gradient_rows(const RouteBackwardArgs& a, int64_t begin, int64_t end) {
  visit_element(a.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> p(static_cast<size_t>(a.experts)), g(p.size());
    for (int64_t t = begin; t < end; ++t) gradient_of_row<T>(a, t, p, g);
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(choose_rows);
HWY_EXPORT(gradient_rows);

namespace {

// Sorts choices by expert. One thread: it touches a few integers for each token.
void serve(const RouteArgs& a) {
  const int64_t* expert = a.expert.as<int64_t>();
  int64_t *position = a.position.as<int64_t>(), *order = a.order.as<int64_t>(), *start = a.start.as<int64_t>();
  const int64_t choices = a.chosen * a.tokens;
  std::fill(start, start + a.experts + 1, 0);
  for (int64_t i = 0; i < choices; ++i) position[i] = start[expert[i] + 1]++;
  for (int64_t e = 0; e < a.experts; ++e) start[e + 1] += start[e];
  for (int64_t i = 0; i < choices; ++i) order[start[expert[i]] + position[i]] = i;
}

}  // namespace

void route(CpuStream& stream, const RouteArgs& a) {
  stream.parallel_for(a.tokens, 2048 / (a.experts + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(choose_rows, a.logits.dtype)(a, b, e);
  });
  serve(a);
}

void route_backward(CpuStream& stream, const RouteBackwardArgs& a) {
  stream.parallel_for(a.tokens, 2048 / (a.experts + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(gradient_rows, a.logits.dtype)(a, b, e);
  });
}

namespace {

void check_logits(const char* op, const Tensor& logits) {
  check_float(op, logits);
  check(logits.ndim() == 2 && logits.dim(1) > 0 && logits.dim(1) <= kMostExperts,
        "[{}] logits (tokens, experts) of at most {} experts expected, shape is {}", op, kMostExperts,
        to_string(logits.shape()));
}

Routes route_of(const Tensor& input, int64_t k) {
  check_logits("route", input);
  const Tensor logits = input.to_contiguous();
  const int64_t tokens = logits.dim(0), experts = logits.dim(1);
  check(k >= 1 && k <= experts, "[route] each token can choose 1 to {} of {} experts, not {}", experts, experts, k);
  const auto indices = [&](const Shape& shape) { return Tensor::empty(shape, DType::i64, logits.device()); };
  Routes made{Tensor::empty({k, tokens}, logits.dtype(), logits.device()), indices({k, tokens}), indices({k, tokens}),
              indices({k * tokens}), indices({experts + 1})};
  on(logits.device(), [&](auto& stream) {
    route(stream, RouteArgs{in(logits), out(made.weight), out(made.expert), out(made.position), out(made.order),
                            out(made.start), tokens, experts, k});
  });
  return made;
}

Tensor route_backward_of(const Tensor& dweight, const Tensor& input, const Tensor& weight, const Tensor& expert,
                         const Tensor& start, const RouterLosses& losses) {
  check_logits("route_backward", input);
  const Tensor logits = input.to_contiguous(), dw = dweight.to_contiguous();
  const int64_t tokens = logits.dim(0), experts = logits.dim(1), k = dw.ndim() == 2 ? dw.dim(0) : 0;
  check(k >= 1 && dw.dim(1) == tokens, "[route_backward] a gradient (k, {}) expected, shape is {}", tokens,
        to_string(dw.shape()));
  check_same_dtype("route_backward", dw, logits);
  const Tensor w = operand("route_backward", "weight", weight, {k, tokens}, logits),
               choices = index_operand("route_backward", "expert", expert, {k, tokens}, logits),
               starts = index_operand("route_backward", "start", start, {experts + 1}, logits);
  Tensor dx = Tensor::empty(logits.shape(), logits.dtype(), logits.device());
  const double balance =
      tokens > 0 ? losses.balance_weight * static_cast<double>(experts) / static_cast<double>(k * tokens) : 0;
  on(logits.device(), [&](auto& stream) {
    route_backward(stream, RouteBackwardArgs{in(dw), in(logits), in(w), in(choices), in(starts), out(dx), tokens,
                                             experts, k, balance, 2 * losses.z_weight});
  });
  return dx;
}

const Op kRoute("route(logits, k)", route_of);
const Op kRouteBackward("route_backward(dweight, logits, weight, expert, start, losses) -> dlogits", route_backward_of);

}  // namespace

Routes route(const Tensor& logits, int64_t k) { return kRoute(logits, k); }

Tensor route_backward(const Tensor& dweight, const Tensor& logits, const Tensor& weight, const Tensor& expert,
                      const Tensor& start, const RouterLosses& losses) {
  return kRouteBackward(dweight, logits, weight, expert, start, losses);
}

}  // namespace elinvar
#endif
