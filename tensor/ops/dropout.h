#pragma once
// Dropout with a mask that is never stored: element i (row-major) survives if u >= p in real arithmetic, where u in [0,
// 1) is made of the upper 24 bits of word i % 4 of rng.block(i / 4). A survivor becomes x * (1 / (1 - p)), with the
// factor computed in float64 and rounded once to the type of x; the others become +0. NUMERICS.md, rule 17.
//
// It is its own gradient: dx = dropout(dy, p, rng) with the same rng.
#include "tensor/philox.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

struct DropoutArgs {
  In x;
  Out y;
  int64_t n;  // contiguous elements, at most 2^34
  double p;
  Rng rng;
  const Rng* key = nullptr;  // if set, an Rng on the device that replaces all of rng but op (tensor/graph.h)
};
void dropout(CpuStream&, const DropoutArgs&);
template <class B>
void dropout(GpuStream<B>&, const DropoutArgs&);

// Requires 0 <= p < 1. Overwrites an x that is moved in if it is the only handle on its elements.
Tensor dropout(Tensor x, double p, const Rng& rng);

}  // namespace elinvar
