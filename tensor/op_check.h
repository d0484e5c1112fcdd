#pragma once
// Checks that ops make before their kernels run, and conversions of tensors to kernel arguments.
#include "tensor/base/check.h"
#include "tensor/precision.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

inline In in(const Tensor& t) { return {t.raw(), t.dtype()}; }
inline Out out(Tensor& t) { return {t.raw(), t.dtype()}; }

// Returns the destination of a result like x: x itself, moved, if it is the only handle on its storage; else a new
// tensor. Then x keeps its storage, which nothing else may hold (Tensor::over), until the result is made. x must be
// contiguous.
inline Tensor onto(Tensor& x) { return x.unique() ? std::move(x) : Tensor::empty(x.shape(), x.dtype(), x.device()); }

// GPUs compute in float32 only; float64 exists to check gradients.
inline void check_width(const char* op, const Tensor& x) {
  check(x.dtype() != DType::f64 || x.device().kind == DeviceKind::cpu,
        "[{}] GPUs compute in float32, got float64; convert with to(DType::f32), or move it with to(Device{{}})", op);
}

inline void check_float(const char* op, const Tensor& x) {
  check(x.dtype() == DType::f32 || x.dtype() == DType::f64,
        "[{}] float32 or float64 expected, got {}; convert with to()", op, name_of(x.dtype()));
  check_width(op, x);
}

// Also admits bfloat16 on a GPU, for tensors between products on tensor cores.
inline void check_activation(const char* op, const Tensor& x) {
  if (x.dtype() != DType::bf16 || x.device().kind == DeviceKind::cpu) check_float(op, x);
}

inline void check_same_device(const char* op, const Tensor& a, const Tensor& b) {
  check(a.device() == b.device(), "[{}] operands must be on one device, got {} and {}", op, name_of(a.device().kind),
        name_of(b.device().kind));
}

// Requires operands of one type, on one device.
inline void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  check(a.dtype() == b.dtype(), "[{}] operands must have one dtype, got {} and {}", op, name_of(a.dtype()),
        name_of(b.dtype()));
  check_same_device(op, a, b);
}

// Returns a contiguous parameter or statistic `t` for a kernel of x. It must have the type that x is computed in, x's
// device, and this shape.
inline Tensor operand(const char* op, const char* name, const Tensor& t, const Shape& shape, const Tensor& x) {
  const DType type = computed_in(x.dtype());
  check(t.defined() && t.dtype() == type && t.shape() == shape, "[{}] {} must be {} of shape {}, got {}", op, name,
        name_of(type), to_string(shape),
        t.defined() ? fmt::format("{} of shape {}", name_of(t.dtype()), to_string(t.shape())) : "none");
  check_same_device(op, x, t);
  return t.to_contiguous();
}

// The same for indices that another op has made, which are int64. Kernels pass over those that are out of range.
inline Tensor index_operand(const char* op, const char* name, const Tensor& t, const Shape& shape, const Tensor& x) {
  check(t.defined() && t.dtype() == DType::i64 && t.shape() == shape, "[{}] {} must be int64 of shape {}, got {}", op,
        name, to_string(shape),
        t.defined() ? fmt::format("{} of shape {}", name_of(t.dtype()), to_string(t.shape())) : "none");
  check_same_device(op, x, t);
  return t.to_contiguous();
}

inline void check_same_shape(const char* op, const Tensor& a, const Tensor& b) {
  if (a.shape() == b.shape()) return;
  check(false, "[{}] shapes {} and {} must be equal", op, to_string(a.shape()), to_string(b.shape()));
}

}  // namespace elinvar
