#pragma once
// The running statistics of batch norms (NUMERICS.md, rule 20), updated in place:
//   running = fma(momentum, sum / count, (1 - momentum) * running)
// with momentum, 1 - momentum and count rounded to the element type once.
#include <span>
#include <vector>

#include "tensor/fields.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

struct RunningMeanArgs {
  In sum;
  Out running;
  int64_t n;  // elements
  double momentum = 0, count = 1;
  ELINVAR_FIELDS(sum, running, n, momentum, count)
};
void running_mean(CpuStream&, std::span<const RunningMeanArgs>);
template <class B>
void running_mean(GpuStream<B>&, std::span<const RunningMeanArgs>);

// Updates all of them, on one device. Of the constants of each only the numbers are used.
void running_mean(std::vector<Tensor>& running, const std::vector<Tensor>& sums,
                  const std::vector<RunningMeanArgs>& constants);

}  // namespace elinvar
