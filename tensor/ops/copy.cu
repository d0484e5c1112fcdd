#include "tensor/cuda/kernel.h"

#include "tensor/convert.h"
#include "tensor/cuda/elements.h"
#include "tensor/cuda/strided.h"
#include "tensor/ops/copy.h"
#include "tensor/strided.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

template <class From, class To>
__global__ void copy_contiguous(const From* x, To* y, int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) y[i] = convert<To>(x[i]);
}

// Between float32 and bfloat16.
template <class From, class To>
__global__ void copy_rounded(const From* x, To* y, int64_t n, bool aligned) {
  map_elements(
      n, aligned, [](float of_x) { return of_x; }, y, x);
}

template <class From, class To>
__global__ void copy_strided(const From* x, To* y, StridedElements<2> places, int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    int64_t at[2];
    places.offsets(i, at);
    y[at[1]] = convert<To>(x[at[0]]);
  }
}

template <class T>
__global__ void fill_strided(T* y, T value, StridedElements<1> places, int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    int64_t at[1];
    places.offsets(i, at);
    y[at[0]] = value;
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void copy(Gpu& stream, const CopyArgs& a) {
  const StridedRows<2> rows(a.shape, {a.x_strides, a.y_strides});
  const int64_t n = a.shape.numel();
  visit_dtype(a.x.dtype, [&](auto from) {
    visit_dtype(a.y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      constexpr bool kRounded = (std::is_same_v<From, bf16> && std::is_same_v<To, float>) ||
                                (std::is_same_v<From, float> && std::is_same_v<To, bf16>);
      if (rows.rows() != 1 || rows.inner_stride(0) != 1 || rows.inner_stride(1) != 1)
        launch(stream, "copy", {.blocks = blocks_for(n)}, HWY_NAMESPACE::copy_strided<From, To>, a.x.as<From>(),
               a.y.as<To>(), StridedElements<2>(rows), n);
      else if constexpr (kRounded)
        launch(stream, "copy", {.blocks = blocks_for_elements<From, To>(n)}, HWY_NAMESPACE::copy_rounded<From, To>,
               a.x.as<From>(), a.y.as<To>(), n, start_at_16(a.x.as<From>(), a.y.as<To>()));
      else
        launch(stream, "copy", {.blocks = blocks_for(n)}, HWY_NAMESPACE::copy_contiguous<From, To>, a.x.as<From>(),
               a.y.as<To>(), n);
    });
  });
}

template <>
void fill(Gpu& stream, const FillArgs& a) {
  const StridedRows<1> rows(a.shape, {a.y_strides});
  const int64_t n = a.shape.numel();
  visit_dtype(a.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, "fill", {.blocks = blocks_for(n)}, HWY_NAMESPACE::fill_strided<T>, a.y.as<T>(), convert<T>(a.value),
           StridedElements<1>(rows), n);
  });
}

}  // namespace elinvar
