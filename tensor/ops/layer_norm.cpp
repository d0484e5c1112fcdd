#include "tensor/ops/layer_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/layer_norm.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/ops/column_sum.h"
#include "tensor/ops/pointwise.h"
#include "tensor/trace.h"
#include "tensor/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// gamma or beta, or its default.
template <class T>
struct Affine {
  const T* values;
  Vec<T> absent;
  HWY_INLINE Vec<T> load(int64_t i, int64_t count) const { return values ? Vec<T>::load(values + i, count) : absent; }
};

// Writes x + addend.
template <class T>
HWY_INLINE void add_row(const T* x, const T* addend, T* sum, int64_t n) {
  using V = Vec<T>;
  for (int64_t i = 0; i < n; i += V::kLanes) (V::load(x + i, n - i) + V::load(addend + i, n - i)).store(sum + i, n - i);
}

template <RowNorm kKind, class T>
void forward_rows(const RowNormArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  constexpr bool kCentred = kKind == RowNorm::layer;
  const int64_t n = a.cols;
  const T count_of_row = static_cast<T>(n);
  const Affine<T> gamma{a.gamma.as<T>(), V::set(T{1})}, beta{a.beta.as<T>(), V::set(T{0})};
  for (int64_t row = begin; row < end; ++row) {
    const T* x = a.x.as<T>() + row * n;
    T* y = a.y.as<T>() + row * n;
    if (a.addend.data) {
      T* sum = a.sum.as<T>() + row * n;
      add_row(x, a.addend.as<T>() + row * n, sum, n);
      x = sum;
    }
    const auto load_x = [&](int64_t i, int64_t count) { return V::load(x + i, count); };
    T m{0}, squares;
    if constexpr (kCentred) {
      m = row_sum<T>(n, load_x) / count_of_row;
      a.mean.as<T>()[row] = m;
      const V vm = V::set(m);
      squares = row_reduce<T>(n, [&](V acc, int64_t i, int64_t count) {
        const V d = first_lanes<T>(V::load(x + i, count) - vm, count);
        return fma(d, d, acc);
      });
    } else {
      squares = row_dot<T>(n, load_x, load_x);
    }
    T r = squares / count_of_row + static_cast<T>(a.eps);
    r = T{1} / std::sqrt(r);
    a.r.as<T>()[row] = r;
    const V vm = V::set(m), vr = V::set(r);
    for (int64_t i = 0; i < n; i += V::kLanes) {
      const V v = V::load(x + i, n - i);
      const V h = (kCentred ? v - vm : v) * vr;
      fma(h, gamma.load(i, n - i), beta.load(i, n - i)).store(y + i, n - i);
    }
  }
}

// Computes rows of the leaves [begin, end).
template <RowNorm kKind, class T>
void backward_leaves(const RowNormBackwardArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  constexpr bool kCentred = kKind == RowNorm::layer;
  const int64_t n = a.cols;
  const V count_of_row = V::set(static_cast<T>(n));
  const Affine<T> gamma{a.gamma.as<T>(), V::set(T{1})};
  for (int64_t leaf = begin; leaf < end; ++leaf) {
    T* dgamma = a.partial.data ? a.partial.as<T>() + leaf * 2 * n : nullptr;
    T* dbeta = dgamma ? dgamma + n : nullptr;
    if (dgamma) std::fill(dgamma, dgamma + 2 * n, T{0});
    for (int64_t row = leaf * kColumnLeaf; row < std::min(a.rows, (leaf + 1) * kColumnLeaf); ++row) {
      const T* x = a.x.as<T>() + row * n;
      const T* dy = a.dy.as<T>() + row * n;
      const V vm = V::set(kCentred ? a.mean.as<T>()[row] : T{0}), vr = V::set(a.r.as<T>()[row]);
      const auto h = [&](int64_t i, int64_t count) {
        const V v = V::load(x + i, count);
        return (kCentred ? v - vm : v) * vr;
      };
      for (int64_t i = 0; dgamma && i < n; i += V::kLanes) {
        const V d = V::load(dy + i, n - i);
        fma(d, h(i, n - i), V::load(dgamma + i, n - i)).store(dgamma + i, n - i);
        (V::load(dbeta + i, n - i) + d).store(dbeta + i, n - i);
      }
      if (a.dx.data) {
        T* dx = a.dx.as<T>() + row * n;
        const auto g = [&](int64_t i, int64_t count) { return V::load(dy + i, count) * gamma.load(i, count); };
        const auto h_of_row = [&](int64_t i, int64_t count) { return first_lanes<T>(h(i, count), count); };
        const V sum_g = V::set(kCentred ? row_sum<T>(n, g) : T{0}) / count_of_row;
        const V sum_gh = V::set(row_dot<T>(n, g, h_of_row)) / count_of_row;
        for (int64_t i = 0; i < n; i += V::kLanes) {
          const V gi = g(i, n - i);
          (vr * fma(neg(h(i, n - i)), sum_gh, kCentred ? gi - sum_g : gi)).store(dx + i, n - i);
        }
      }
    }
  }
}

void row_norm_rows(const RowNormArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (a.kind == RowNorm::layer) forward_rows<RowNorm::layer, T>(a, begin, end);
    else forward_rows<RowNorm::rms, T>(a, begin, end);
  });
}

void row_norm_backward_leaves(const RowNormBackwardArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (a.kind == RowNorm::layer) backward_leaves<RowNorm::layer, T>(a, begin, end);
    else backward_leaves<RowNorm::rms, T>(a, begin, end);
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(row_norm_rows);
HWY_EXPORT(row_norm_backward_leaves);

void row_norm(CpuStream& stream, const RowNormArgs& a) {
  stream.parallel_for(a.rows, 8192 / (a.cols + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(row_norm_rows, a.x.dtype)(a, b, e);
  });
}

void row_norm_backward(CpuStream& stream, const RowNormBackwardArgs& a) {
  stream.parallel_for((a.rows + kColumnLeaf - 1) / kColumnLeaf, 4096 / (kColumnLeaf * a.cols + 1) + 1,
                      [&](int64_t b, int64_t e) {
                        ELINVAR_KERNEL(row_norm_backward_leaves, a.x.dtype)
                        (a, b, e);
                      });
}

namespace {

// Returns gamma or beta in the form that kernels read.
Tensor parameter(const char* op, const char* name, const Tensor& p, const Tensor& x) {
  return p.defined() ? operand(op, name, p, {x.dim(-1)}, x) : p;
}

void check_rows(const char* op, const Tensor& x) {
  check_activation(op, x);
  check(x.ndim() >= 1 && x.dim(-1) > 0, "[{}] a last dimension with elements expected, shape is {}", op,
        to_string(x.shape()));
}

In in_or_absent(const Tensor& t) { return t.defined() ? in(t) : In{}; }
Out out_or_absent(Tensor& t) { return t.defined() ? out(t) : Out{}; }

// Whether `t` has x's type, or is bfloat16 while x is float32.
bool same_or_narrow(const Tensor& t, const Tensor& x) {
  return t.dtype() == x.dtype() || (t.dtype() == DType::bf16 && x.dtype() == DType::f32);
}

// Normalises input + *addend, or input if `addend` is null.
AddNormResult forward(const char* op, RowNorm kind, const Tensor& input, const Tensor* addend, const Tensor& scale,
                      const Tensor& shift, double eps, DType type) {
  check_rows(op, input);
  check(type == input.dtype() ||
            (type == DType::bf16 && input.dtype() == DType::f32 && input.device().kind != DeviceKind::cpu),
        "[{}] a result of the input's type {} expected, or of bfloat16 for float32 on a GPU, not {}", op,
        name_of(input.dtype()), name_of(type));
  const Tensor gamma = parameter(op, "gamma", scale, input), beta = parameter(op, "beta", shift, input);
  const Tensor x = input.to_contiguous();
  const int64_t cols = x.dim(-1), rows = x.numel() / cols;
  const auto of_row = [&] { return Tensor::empty({rows}, computed_in(x.dtype()), x.device()); };
  Tensor more;
  AddNormResult result{{}, {Tensor::empty(x.shape(), type, x.device()), {}, of_row()}};
  if (kind == RowNorm::layer) result.norm.mean = of_row();
  if (addend) {
    check_same_shape(op, x, *addend);
    check_activation(op, *addend);
    check_same_device(op, x, *addend);
    check(same_or_narrow(*addend, x), "[{}] an addend of type {} expected, or of bfloat16 for a float32 input, not {}",
          op, name_of(x.dtype()), name_of(addend->dtype()));
    more = addend->to_contiguous();
    result.sum = Tensor::empty(x.shape(), x.dtype(), x.device());
  }
  on(x.device(), [&](auto& stream) {
    row_norm(stream, RowNormArgs{in(x), in_or_absent(gamma), in_or_absent(beta), in_or_absent(more),
                                 out_or_absent(result.sum), out(result.norm.y), out_or_absent(result.norm.mean),
                                 out(result.norm.r), rows, cols, eps, kind});
  });
  return result;
}

RowNormGradients backward_of(RowNorm kind, Tensor dy, const Tensor& input, const Tensor& scale,
                             const RowNormResult& saved, bool want_dx, bool want_parameters, Tensor sum) {
  constexpr const char* kName = "row_norm_backward";
  check_rows(kName, input);
  check_same_shape(kName, dy, input);
  check_activation(kName, dy);
  check_same_device(kName, dy, input);
  check(same_or_narrow(dy, input),
        "[{}] a gradient of the input's type {} expected, or of bfloat16 for a float32 input, not {}", kName,
        name_of(input.dtype()), name_of(dy.dtype()));
  if (sum.defined()) {
    check(want_dx, "[{}] a sum is for dx, which is not wanted", kName);
    check_same_shape(kName, sum, input);
    check_same_dtype(kName, sum, input);
    if (input.device() == Device{}) {
      RowNormGradients grads = backward_of(kind, std::move(dy), input, scale, saved, true, want_parameters, {});
      grads.dx = add_to(std::move(sum), grads.dx);
      return grads;
    }
    sum = sum.to_contiguous();
  }
  dy = dy.to_contiguous();
  const In g = in(dy), before = in_or_absent(sum);
  const Tensor x = input.to_contiguous(), gamma = parameter(kName, "gamma", scale, input);
  const int64_t cols = x.dim(-1), rows = x.numel() / cols, leaves = (rows + kColumnLeaf - 1) / kColumnLeaf;
  const Tensor mean = kind == RowNorm::layer ? operand(kName, "the mean", saved.mean, {rows}, x) : Tensor(),
               r = operand(kName, "r", saved.r, {rows}, x);
  RowNormGradients grads;
  if (want_dx && sum.defined()) grads.dx = onto(sum);
  else if (want_dx && dy.dtype() == x.dtype()) grads.dx = onto(dy);
  else if (want_dx) grads.dx = Tensor::empty(x.shape(), x.dtype(), x.device());
  Tensor partial, sums;
  if (want_parameters) {
    partial = Tensor::empty({leaves, 2, cols}, computed_in(x.dtype()), x.device());
    sums = Tensor::empty({2, cols}, computed_in(x.dtype()), x.device());
  }
  on(x.device(), [&](auto& stream) {
    row_norm_backward(stream, RowNormBackwardArgs{g, in(x), in_or_absent(gamma), in_or_absent(mean), in(r), before,
                                                  want_dx ? out(grads.dx) : Out{},
                                                  want_parameters ? out(partial) : Out{}, rows, cols, kind});
    if (want_parameters) column_tree(stream, ColumnTreeArgs{in(partial), out(sums), leaves, 2 * cols});
  });
  if (want_parameters) {
    grads.dgamma = sums.select(0, 0);
    grads.dbeta = sums.select(0, 1);
  }
  return grads;
}

const Op kLayerNorm(
    "layer_norm(x, gamma, beta, eps, result)",
    +[](const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, DType result) {
      return forward("layer_norm", RowNorm::layer, x, nullptr, gamma, beta, eps, result).norm;
    });
const Op kRmsNorm(
    "rms_norm(x, gamma, eps, result)", +[](const Tensor& x, const Tensor& gamma, double eps, DType result) {
      return forward("rms_norm", RowNorm::rms, x, nullptr, gamma, {}, eps, result).norm;
    });
const Op kAddNorm(
    "add_norm(kind, x, addend, gamma, beta, eps, result)",
    +[](RowNorm kind, const Tensor& x, const Tensor& addend, const Tensor& gamma, const Tensor& beta, double eps,
        DType result) { return forward("add_norm", kind, x, &addend, gamma, beta, eps, result); });
const Op kRowNormBackward("row_norm_backward(kind, dy, x, gamma, saved, want_dx, want_parameters, sum)", backward_of);

}  // namespace

RowNormResult layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, DType result) {
  return kLayerNorm(x, gamma, beta, eps, result);
}

RowNormResult rms_norm(const Tensor& x, const Tensor& gamma, double eps, DType result) {
  return kRmsNorm(x, gamma, eps, result);
}

AddNormResult add_norm(RowNorm kind, const Tensor& x, const Tensor& addend, const Tensor& gamma, const Tensor& beta,
                       double eps, DType result) {
  return kAddNorm(kind, x, addend, gamma, beta, eps, result);
}

RowNormGradients row_norm_backward(RowNorm kind, Tensor dy, const Tensor& x, const Tensor& gamma,
                                   const RowNormResult& saved, bool want_dx, bool want_parameters, Tensor sum) {
  return kRowNormBackward(kind, std::move(dy), x, gamma, saved, want_dx, want_parameters, std::move(sum));
}

}  // namespace elinvar
#endif
