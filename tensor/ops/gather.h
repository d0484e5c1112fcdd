#pragma once
// Picks elements along a dimension.
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// y[o, i, c] = x[o, index[o, i, c], c]
struct GatherArgs {
  In x;      // (outer, extent, inner)
  In index;  // (outer, picks, inner) int64
  Out y;     // like index
  int64_t outer, extent, picks, inner;
};
void gather(CpuStream&, const GatherArgs&);
template <class B>
void gather(GpuStream<B>&, const GatherArgs&);

// dx[o, v, c] = sum of dy[o, i, c] over the i with index[o, i, c] == v, ascending, by rule 12 of NUMERICS.md.
struct GatherBackwardArgs {
  In dy, index;
  In order;  // (outer, picks, inner) int64: picks sorted by target, ascending for one target; GPUs only
  Out dx;    // on GPUs, filled with zeros before
  int64_t outer, extent, picks, inner;
};
void gather_backward(CpuStream&, const GatherBackwardArgs&);
template <class B>
void gather_backward(GpuStream<B>&, const GatherBackwardArgs&);

// y[.., i, ..] = x[.., index[.., i, ..], ..] along `dim`. x is float32 or float64; index, int32 or int64, has x's
// extents in all other dimensions.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
// Returns dx for an x of `extent` elements along `dim`.
Tensor gather_backward(const Tensor& dy, int dim, const Tensor& index, int64_t extent);

}  // namespace elinvar
