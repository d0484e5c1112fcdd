#pragma once
// What an op does, by its arguments and results: floating-point operations of products, and bytes of tensors.
#include "tensor/trace.h"

namespace elinvar {

struct OpWork {
  double flop = 0;   // a multiply-add counts two; 0: no product
  double bytes = 0;  // of all tensors, read or written
};

// Products are counted whole, taps of filters that fall into the padding too; causal attention by the keys that queries
// see. The backward pass of attention has five products, as it computes the scores again.
OpWork work_of(const AnyOp& op, const TraceValues& arguments);
// What is known only of the results is added.
void add_results(OpWork& work, const TraceValues& results);

}  // namespace elinvar
