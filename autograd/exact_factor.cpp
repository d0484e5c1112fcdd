#include "autograd/exact_factor.h"

#include <algorithm>

namespace elinvar {
namespace {

Quantized rounded_from(const Origin& origin, const Shape& shape, const Tensor& against) {
  if (!origin.x.defined()) return quantize_rows(origin.compute().reshape(shape), against);
  return quantize_affine_rows(origin.x.reshape(shape), origin.a, origin.b, origin.relu, against);
}

// Returns x rounded against these exponents if a function keeps that. The exponents of a GPU are not looked at, for
// which the CPU would have to wait.
std::shared_ptr<const Quantized> kept_of(const Var& x, const Shape& shape, const Tensor& against) {
  if (against.device().kind != DeviceKind::cpu || !x.rounded()) return nullptr;
  auto kept = x.rounded()->lock();
  if (!kept || kept->q.shape() != Shape{shape[0], shape[1], (shape[2] + 1) / 2}) return nullptr;
  const auto wanted = against.span<int32_t>(), had = kept->channels.span<int32_t>();
  const bool same =
      std::equal(wanted.begin(), wanted.end(), had.begin(), had.end(), [](int32_t e, int32_t h) { return e == -h; });
  return same ? kept : nullptr;
}

}  // namespace

ExactFactor::ExactFactor(const Var& x, const Shape& shape, const Tensor& against, Quantized& rounded)
    : shape_(shape), against_(against) {
  if (const Origin* origin = x.origin()) {
    rounded =
        origin->x.defined() ? rounded_from(*origin, shape, against) : quantize_rows(x.value().reshape(shape), against);
    origin_ = *origin;
    kept_ = std::make_shared<Quantized>(Quantized{.q = {}, .rows = rounded.rows, .channels = rounded.channels});
    return;
  }
  kept_ = kept_of(x, shape, against);
  if (!kept_) {
    kept_ = std::make_shared<Quantized>(quantize_rows(x.value().reshape(shape), against));
    if (x.rounded()) *x.rounded() = kept_;
  }
  rounded = *kept_;
}

Quantized ExactFactor::of_channels() const {
  return origin_.compute ? rounded_from(origin_, shape_, against_) : *kept_;
}

Quantized ExactFactor::of_rows() const {
  if (!origin_.compute) return pair_rows(*kept_);
  const Tensor x = (origin_.x.defined() ? origin_.x : origin_.compute()).reshape(shape_);
  return pair_affine_rows(x, origin_.a, origin_.b, origin_.relu, kept_->rows, kept_->channels);
}

QuantizedBoth rounded_gradient(const Tensor& dy, bool of_x, const Tensor& weight_rows, bool of_w,
                               const Tensor& x_rows) {
  if (of_x && of_w) return quantize_both(dy, weight_rows, x_rows);
  if (of_x) return {quantize_rows(dy, weight_rows), {}};
  if (of_w) return {{}, quantize_channels(dy, x_rows)};
  return {};
}

}  // namespace elinvar
