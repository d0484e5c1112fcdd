#pragma once
// Dropout with a mask that nobody stores: element i (row-major) survives if word i % 4 of rng.block(i / 4), its upper
// 24 bits read as a number u in [0, 1), has u >= p in real arithmetic; a survivor becomes x * (1 / (1 - p)) with the
// factor computed in float64 and rounded once to the type of x, the others +0. NUMERICS.md, rule 17.
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
  const Rng* key = nullptr;  // on the device, of whose numbers all but the op count (tensor/graph.h); null: rng itself
};
void dropout(CpuStream&, const DropoutArgs&);
template <class B>
void dropout(GpuStream<B>&, const DropoutArgs&);

// 0 <= p < 1. An x that is moved in is written over if it is the only handle on its elements.
Tensor dropout(Tensor x, double p, const Rng& rng);

}  // namespace elinvar
