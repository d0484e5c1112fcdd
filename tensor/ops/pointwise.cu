#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/cuda/strided.h"
#include "tensor/ops/pointwise-inl.h"
#include "tensor/strided.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

// The bodies compute in T, or in float if the elements are bfloat16.
template <class Function, class T>
__global__ void unary_elements(const T* x, T* y, int64_t n, bool aligned, float parameter) {
  map_elements(
      n, aligned, [=](float of_x) { return value_of<Function>(V{of_x}, V{parameter}).v; }, y, x);
}

template <class Function, class T>
__global__ void gradient_elements(const T* dy, const T* s, T* dx, int64_t n, bool aligned, float parameter) {
  map_elements(
      n, aligned, [=](float of_dy, float of_s) { return gradient_of<Function>(V{of_dy}, V{of_s}, V{parameter}).v; }, dx,
      dy, s);
}

template <class Function, class A, class B, class Y>
__global__ void binary_contiguous(const A* a, const B* b, Y* y, int64_t n, bool aligned) {
  map_elements(
      n, aligned, [](auto x, auto z) { return Function::f(Vec<decltype(x)>{x}, Vec<decltype(x)>{z}).v; }, y, a, b);
}

template <class Function, class T>
__global__ void binary_strided(const T* a, const T* b, T* y, StridedElements<3> places, int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    int64_t at[3];
    places.offsets(i, at);
    y[at[2]] = Function::f(Vec<T>{a[at[0]]}, Vec<T>{b[at[1]]}).v;
  }
}

template <class Function>
__global__ void binary_mixed(AnyReads a, AnyReads b, AnyWrites y, StridedElements<3> places, int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    int64_t at[3];
    places.offsets(i, at);
    y.store(at[2], Function::f(V{a[at[0]]}, V{b[at[1]]}).v);
  }
}

// Calls f with the function at index `index` of a list.
template <class... Functions, class F>
void with_function(pointwise::List<Functions...>, int index, F f) {
  int i = 0;
  static_cast<void>(((i++ == index ? (f(Functions{}), true) : false) || ...));
}

template <class Function, class A, class B, class Y>
void launch_contiguous(Gpu& stream, const BinaryArgs& a, int64_t n) {
  launch(stream, pointwise::kBinaryNames[a.op], {.blocks = blocks_for_elements<A, B, Y>(n)},
         binary_contiguous<Function, A, B, Y>, a.a.as<A>(), a.b.as<B>(), a.y.as<Y>(), n,
         start_at_16(a.a.as<A>(), a.b.as<B>(), a.y.as<Y>()));
}

bool contiguous(const StridedRows<3>& rows) {
  return rows.rows() == 1 && rows.inner_stride(0) == 1 && rows.inner_stride(1) == 1 && rows.inner_stride(2) == 1;
}

// For operands of one type, in which the kernel computes.
template <class T>
void binary_of(Gpu& stream, const BinaryArgs& a, const StridedRows<3>& rows) {
  const int64_t n = a.shape.numel();
  with_function(formulas::BinaryFunctions{}, a.op, [&](auto function) {
    using Function = decltype(function);
    if (contiguous(rows)) launch_contiguous<Function, T, T, T>(stream, a, n);
    else
      launch(stream, pointwise::kBinaryNames[a.op], {.blocks = blocks_for(n)}, binary_strided<Function, T>, a.a.as<T>(),
             a.b.as<T>(), a.y.as<T>(), StridedElements<3>(rows), n);
  });
}

// For operands of which some are bfloat16: all, or a branch that is added to a float32 residual. Accesses are 16 bytes.
void binary_of_mixed(Gpu& stream, const BinaryArgs& a, const StridedRows<3>& rows) {
  const int64_t n = a.shape.numel();
  const bool dense = contiguous(rows), b = a.b.dtype == DType::bf16;
  with_function(formulas::BinaryFunctions{}, a.op, [&](auto function) {
    using Function = decltype(function);
    if (dense && b && a.a.dtype == DType::bf16 && a.y.dtype == DType::bf16)
      launch_contiguous<Function, bf16, bf16, bf16>(stream, a, n);
    else if (dense && b && a.a.dtype == DType::f32 && a.y.dtype == DType::f32)
      launch_contiguous<Function, float, bf16, float>(stream, a, n);
    else
      launch(stream, pointwise::kBinaryNames[a.op], {.blocks = blocks_for(n)}, binary_mixed<Function>, AnyReads(a.a),
             AnyReads(a.b), AnyWrites(a.y), StridedElements<3>(rows), n);
  });
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void unary(Gpu& stream, const UnaryArgs& a) {
  visit_activation(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    HWY_NAMESPACE::with_function(HWY_NAMESPACE::formulas::UnaryFunctions{}, a.op, [&](auto function) {
      using Function = decltype(function);
      launch(stream, pointwise::kUnaryNames[a.op], {.blocks = blocks_for_elements<T>(a.n)},
             HWY_NAMESPACE::unary_elements<Function, T>, a.x.as<T>(), a.y.as<T>(), a.n,
             start_at_16(a.x.as<T>(), a.y.as<T>()), static_cast<float>(a.parameter));
    });
  });
}

template <>
void unary_backward(Gpu& stream, const UnaryBackwardArgs& a) {
  visit_activation(a.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    HWY_NAMESPACE::with_function(HWY_NAMESPACE::formulas::UnaryFunctions{}, a.op, [&](auto function) {
      using Function = decltype(function);
      launch(stream, pointwise::kUnaryNames[a.op], {.blocks = blocks_for_elements<T>(a.n)},
             HWY_NAMESPACE::gradient_elements<Function, T>, a.dy.as<T>(), a.saved.as<T>(), a.dx.as<T>(), a.n,
             start_at_16(a.dy.as<T>(), a.saved.as<T>(), a.dx.as<T>()), static_cast<float>(a.parameter));
    });
  });
}

template <>
void binary(Gpu& stream, const BinaryArgs& a) {
  const StridedRows<3> rows(a.shape, {a.a_strides, a.b_strides, a.y_strides});
  for (const DType t : {a.a.dtype, a.b.dtype, a.y.dtype})
    if (t == DType::bf16) return HWY_NAMESPACE::binary_of_mixed(stream, a, rows);
  switch (a.y.dtype) {
    case DType::i32:
      return HWY_NAMESPACE::binary_of<int32_t>(stream, a, rows);
    case DType::i64:
      return HWY_NAMESPACE::binary_of<int64_t>(stream, a, rows);
    default:
      return HWY_NAMESPACE::binary_of<float>(stream, a, rows);
  }
}

}  // namespace elinvar
