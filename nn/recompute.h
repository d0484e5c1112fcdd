#pragma once
// Blocks of a network that may keep only their input for their gradients.
#include <functional>
#include <iterator>
#include <utility>

#include "autograd/recompute.h"
#include "nn/input_store.h"
#include "nn/network.h"

namespace elinvar {

// Returns block(x, context), through recompute() if the context says so. The block must outlive the gradient. x is a
// Var or a Residual, and so is the result.
template <class Block, class Stream>
Stream run_block(const Block& block, const Stream& x, Context& context) {
  if (!context.training || !context.recompute.on) return block(x, context);
  const Rng start = context.rng;
  KeepInput keep;
  if (InputStore* store = context.recompute.inputs)
    keep = [store](Tensor input) { return store->put(std::move(input)); };
  return recompute(
      [&block, start, group = context.group, inputs = context.inputs, first = &context](const Var& input) mutable {
        Context own{.training = true, .rng = start, .statistics = {}, .group = group, .inputs = inputs};
        Var y = block(input, own);
        if (Context* outer = std::exchange(first, nullptr)) {  // the second run reports nothing
          outer->rng = own.rng;
          std::move(own.statistics.begin(), own.statistics.end(), std::back_inserter(outer->statistics));
        }
        return y;
      },
      x, keep);
}

}  // namespace elinvar
