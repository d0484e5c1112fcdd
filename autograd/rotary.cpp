#include "autograd/linear.h"
#include "tensor/op_check.h"

namespace elinvar {

Var rotary(const Var& x, const RotaryFrequencies& frequencies, int64_t first) {
  check_activation("rotary", x.value());
  check(x.ndim() == 4 && x.dim(3) % 2 == 0 && x.dim(3) > 0,
        "[rotary] (B, T, H, D) with an even D expected, shape is {}", to_string(x.shape()));
  const RotaryAngles angles =
      rotary_angles(x.dim(1), x.dim(3) / 2, frequencies, first, computed_in(x.dtype()), x.value().device());
  return record(rotary(x.value(), angles, false), {x},
                [angles](const Tensor& dy) { return std::vector<Tensor>{rotary(dy, angles, true)}; });
}

}  // namespace elinvar
