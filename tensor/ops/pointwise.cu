#include "tensor/cuda/kernel.h"

#include "tensor/cuda/fours.h"
#include "tensor/cuda/strided.h"
#include "tensor/ops/pointwise-inl.h"
#include "tensor/strided.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

template <class Op>
__global__ void unary_elements(UnaryArgs a, bool in_fours) {
  map_elements(
      a.n, in_fours, [](float x) { return Body<Op>::f(V{x}).v; }, a.y.as<float>(), a.x.as<float>());
}

template <class Op>
__global__ void gradient_elements(UnaryBackwardArgs a, bool in_fours) {
  map_elements(
      a.n, in_fours, [](float dy, float s) { return Body<Op>::gradient(V{dy}, V{s}).v; }, a.dx.as<float>(),
      a.dy.as<float>(), a.saved.as<float>());
}

template <class Op, class T>
__global__ void binary_contiguous(const T* a, const T* b, T* y, int64_t n, bool in_fours) {
  map_elements(
      n, in_fours, [](T x, T z) { return Body<Op>::f(Vec<T>{x}, Vec<T>{z}).v; }, y, a, b);
}

template <class Op, class T>
__global__ void binary_strided(const T* a, const T* b, T* y, StridedElements<3> places, int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    int64_t at[3];
    places.offsets(i, at);
    y[at[2]] = Body<Op>::f(Vec<T>{a[at[0]]}, Vec<T>{b[at[1]]}).v;
  }
}

// Calls f with the tag of the op at place `index` of a list.
template <class... Ops, class F>
void with_op(pointwise::OpList<Ops...>, int index, F f) {
  int i = 0;
  static_cast<void>(((i++ == index ? (f(Ops{}), true) : false) || ...));
}

template <class T>
void binary_of(Gpu& stream, const BinaryArgs& a, const StridedRows<3>& rows) {
  const int64_t n = a.shape.numel();
  const bool contiguous =
      rows.rows() == 1 && rows.inner_stride(0) == 1 && rows.inner_stride(1) == 1 && rows.inner_stride(2) == 1;
  with_op(pointwise::BinaryOps{}, a.op, [&](auto op) {
    using Op = decltype(op);
    if (contiguous)
      launch(stream, Op::name, {.blocks = blocks_for_fours(n)}, binary_contiguous<Op, T>, a.a.as<T>(), a.b.as<T>(),
             a.y.as<T>(), n, start_at_16(a.a.as<T>(), a.b.as<T>(), a.y.as<T>()));
    else
      launch(stream, Op::name, {.blocks = blocks_for(n)}, binary_strided<Op, T>, a.a.as<T>(), a.b.as<T>(), a.y.as<T>(),
             StridedElements<3>(rows), n);
  });
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void unary(Gpu& stream, const UnaryArgs& a) {
  HWY_NAMESPACE::with_op(pointwise::UnaryOps{}, a.op, [&](auto op) {
    using Op = decltype(op);
    launch(stream, Op::name, {.blocks = blocks_for_fours(a.n)}, HWY_NAMESPACE::unary_elements<Op>, a,
           start_at_16(a.x.as<float>(), a.y.as<float>()));
  });
}

template <>
void unary_backward(Gpu& stream, const UnaryBackwardArgs& a) {
  HWY_NAMESPACE::with_op(pointwise::UnaryOps{}, a.op, [&](auto op) {
    using Op = decltype(op);
    launch(stream, Op::name, {.blocks = blocks_for_fours(a.n)}, HWY_NAMESPACE::gradient_elements<Op>, a,
           start_at_16(a.dy.as<float>(), a.saved.as<float>(), a.dx.as<float>()));
  });
}

template <>
void binary(Gpu& stream, const BinaryArgs& a) {
  const StridedRows<3> rows(a.shape, {a.a_strides, a.b_strides, a.y_strides});
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
