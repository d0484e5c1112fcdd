#pragma once
// Comparisons, and selection by a mask, with broadcasting and any strides. Operands have one type, which may be any. A
// comparison returns uint8, 1 for true; with a NaN all are false except not_equal.
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

enum class Relation { equal, not_equal, less, less_equal };

struct CompareArgs {
  In a, b;
  Out y;  // uint8
  Shape shape, a_strides, b_strides, y_strides;
  Relation relation;
};
void compare(CpuStream&, const CompareArgs&);
template <class B>
void compare(GpuStream<B>&, const CompareArgs&);

struct WhereArgs {
  In condition, a, b;  // condition: uint8
  Out y;
  Shape shape, condition_strides, a_strides, b_strides, y_strides;
};
void where(CpuStream&, const WhereArgs&);
template <class B>
void where(GpuStream<B>&, const WhereArgs&);

Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
inline Tensor greater(const Tensor& a, const Tensor& b) { return less(b, a); }
inline Tensor greater_equal(const Tensor& a, const Tensor& b) { return less_equal(b, a); }

// Returns condition (uint8) ? a : b. Elements of any type are copied as bits.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

}  // namespace elinvar
