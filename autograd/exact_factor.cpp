#include "autograd/exact_factor.h"

namespace elinvar {
namespace {

Quantized rounded_from(const Origin& origin, const Shape& shape, const Tensor& against) {
  if (!origin.x.defined()) return quantize_rows(origin.compute().reshape(shape), against);
  return quantize_affine_rows(origin.x.reshape(shape), origin.a, origin.b, origin.relu, against);
}

}  // namespace

ExactFactor::ExactFactor(const Var& x, const Shape& shape, const Tensor& against, Quantized& rounded)
    : shape_(shape), against_(against) {
  const Origin* origin = x.origin();
  rounded = origin && origin->x.defined() ? rounded_from(*origin, shape, against)
                                          : quantize_rows(x.value().reshape(shape), against);
  kept_ = rounded;
  if (!origin) return;
  origin_ = *origin;
  kept_.q = {};
}

Quantized ExactFactor::of_channels() const { return origin_.compute ? rounded_from(origin_, shape_, against_) : kept_; }

Quantized ExactFactor::of_rows() const {
  if (!origin_.x.defined()) return pair_rows(of_channels());
  return pair_affine_rows(origin_.x.reshape(shape_), origin_.a, origin_.b, origin_.relu, kept_.rows, kept_.channels);
}

QuantizedBoth rounded_gradient(const Tensor& dy, bool of_x, const Tensor& weight_rows, bool of_w,
                               const Tensor& x_rows) {
  if (of_x && of_w) return quantize_both(dy, weight_rows, x_rows);
  if (of_x) return {quantize_rows(dy, weight_rows), {}};
  if (of_w) return {{}, quantize_channels(dy, x_rows)};
  return {};
}

}  // namespace elinvar
