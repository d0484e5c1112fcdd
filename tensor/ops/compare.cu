#include "tensor/cuda/kernel.h"

#include "tensor/cuda/strided.h"
#include "tensor/ops/compare.h"
#include "tensor/strided.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

template <class T>
__device__ auto ordered(T x) {
  if constexpr (std::is_same_v<T, bf16>) return static_cast<float>(x);
  else return x;
}

template <Relation kRelation, class T>
__global__ void compare_elements(const T* a, const T* b, uint8_t* y, StridedElements<3> places, int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    int64_t at[3];
    places.offsets(i, at);
    const auto p = ordered(a[at[0]]), q = ordered(b[at[1]]);
    bool holds = false;
    if constexpr (kRelation == Relation::equal) holds = p == q;
    if constexpr (kRelation == Relation::not_equal) holds = p != q;
    if constexpr (kRelation == Relation::less) holds = p < q;
    if constexpr (kRelation == Relation::less_equal) holds = p <= q;
    y[at[2]] = holds ? 1 : 0;
  }
}

template <class T>
__global__ void select_elements(const uint8_t* condition, const T* a, const T* b, T* y, StridedElements<4> places,
                                int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    int64_t at[4];
    places.offsets(i, at);
    y[at[3]] = condition[at[0]] != 0 ? a[at[1]] : b[at[2]];
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void compare(Gpu& stream, const CompareArgs& a) {
  const StridedElements<3> places(StridedRows<3>(a.shape, {a.a_strides, a.b_strides, a.y_strides}));
  const int64_t n = a.shape.numel();
  visit_dtype(a.a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto by = [&](auto kernel) {
      launch(stream, "compare", {.blocks = blocks_for(n)}, kernel, a.a.as<T>(), a.b.as<T>(), a.y.as<uint8_t>(), places,
             n);
    };
    switch (a.relation) {
      case Relation::equal:
        return by(HWY_NAMESPACE::compare_elements<Relation::equal, T>);
      case Relation::not_equal:
        return by(HWY_NAMESPACE::compare_elements<Relation::not_equal, T>);
      case Relation::less:
        return by(HWY_NAMESPACE::compare_elements<Relation::less, T>);
      case Relation::less_equal:
        return by(HWY_NAMESPACE::compare_elements<Relation::less_equal, T>);
    }
  });
}

template <>
void where(Gpu& stream, const WhereArgs& a) {
  const StridedElements<4> places(
      StridedRows<4>(a.shape, {a.condition_strides, a.a_strides, a.b_strides, a.y_strides}));
  const int64_t n = a.shape.numel();
  visit_dtype(a.a.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, "where", {.blocks = blocks_for(n)}, HWY_NAMESPACE::select_elements<T>, a.condition.as<uint8_t>(),
           a.a.as<T>(), a.b.as<T>(), a.y.as<T>(), places, n);
  });
}

}  // namespace elinvar
