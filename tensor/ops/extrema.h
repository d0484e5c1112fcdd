#pragma once
// The largest or smallest element along a dimension, and its index. Exact (NUMERICS.md, rule 13): the first NaN if
// there is one, else the extreme value with the lowest index; -0 and +0 are equal.
#include "tensor/fields.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

struct ExtremaArgs {
  In x;              // (outer, extent, inner)
  Out value, index;  // (outer, inner); index is int64
  int64_t outer, extent, inner;
  bool largest;
};
void extrema(CpuStream&, const ExtremaArgs&);
template <class B>
void extrema(GpuStream<B>&, const ExtremaArgs&);

struct Extremum {
  Tensor value, index;
  ELINVAR_FIELDS(value, index)
};
// For float32 and float64. `dim` needs at least one element; it is dropped, or kept with extent 1.
Extremum max(const Tensor& x, int dim, bool keepdim = false);
Extremum min(const Tensor& x, int dim, bool keepdim = false);
Tensor argmax(const Tensor& x, int dim, bool keepdim = false);  // int64
Tensor argmin(const Tensor& x, int dim, bool keepdim = false);

}  // namespace elinvar
