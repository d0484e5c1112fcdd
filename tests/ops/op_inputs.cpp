#include "tests/ops/op_inputs.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

#include "tensor/philox.h"

namespace elinvar::test {
namespace {

// A sequence of random words.
class Words {
 public:
  explicit Words(const std::string& name) : rng_{key_of(name)} {}
  uint32_t next() {
    if (used_ == 4) {
      block_ = rng_.block(index_++);
      used_ = 0;
    }
    return block_.v[used_++];
  }
  double uniform() { return (next() + 0.5) * 0x1p-32; }
  double normal() { return std::sqrt(-2.0 * std::log(uniform())) * std::cos(2.0 * std::numbers::pi * uniform()); }

 private:
  Rng rng_;
  Random4 block_{};
  uint32_t index_ = 0;
  int used_ = 4;
};

float adversarial(Words& words, bool positive) {
  const double sign = !positive && (words.next() & 1u) ? -1.0 : 1.0;
  const double mantissa = 1.0 + words.uniform();
  switch (words.next() % 8) {
    case 0:
      return static_cast<float>(positive ? 1.0 : sign * 0.0);
    case 1:
      return static_cast<float>(sign * std::ldexp(mantissa, -140));  // subnormal
    case 2:
      return static_cast<float>(sign * std::ldexp(mantissa, 30 + static_cast<int>(words.next() % 16)));  // huge
    case 3:
      return static_cast<float>(sign * std::ldexp(mantissa, -90 + static_cast<int>(words.next() % 30)));  // tiny
    default:
      return static_cast<float>(sign * mantissa);
  }
}

Tensor make(const Input& input, const std::string& name, Values values) {
  using Kind = Input::Kind;
  Words words(name);
  const int64_t n = input.shape.numel();
  if (input.kind == Kind::index) {
    Tensor x = Tensor::empty(input.shape, DType::i64);
    for (int64_t& v : x.span<int64_t>()) v = static_cast<int64_t>(words.next()) % input.limit;
    return x;
  }
  if (input.kind == Kind::mask) {
    Tensor x = Tensor::empty(input.shape, DType::u8);
    for (uint8_t& v : x.span<uint8_t>()) v = static_cast<uint8_t>(words.next() >> 31);
    return x;
  }
  Tensor x = Tensor::empty(input.shape);
  if (values == Values::zeros) {
    for (float& v : x.span<float>()) v = (words.next() & 1u) ? -0.0f : 0.0f;
    return x;
  }
  if (input.kind == Kind::distinct) {  // a shuffled, evenly spaced ladder over about [-2, 2), exact in float32
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), -n / 2);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[words.next() % i]);
    const double spacing = 4.0 / static_cast<double>(std::bit_ceil(static_cast<uint64_t>(n)));
    for (int64_t i = 0; i < n; ++i)
      x.data<float>()[i] = static_cast<float>(spacing * static_cast<double>(order[static_cast<size_t>(i)]));
    return x;
  }
  const bool positive = input.kind == Kind::positive;
  for (float& v : x.span<float>()) {
    if (values == Values::adversarial) v = adversarial(words, positive);
    else v = static_cast<float>(positive ? 0.25 + 2.0 * words.uniform() : words.normal());
  }
  return x;
}

}  // namespace

Tensors make_inputs(const Inputs& inputs, const std::string& name, Values values) {
  Tensors tensors;
  for (size_t i = 0; i < inputs.size(); ++i) tensors.push_back(make(inputs[i], name + "/" + std::to_string(i), values));
  return tensors;
}

Tensor normal(const Shape& shape, const std::string& name, DType dtype) {
  return make(Input{shape}, name, Values::ordinary).to(dtype);
}

Tensor in_other_layout(const Tensor& x) {
  if (x.ndim() >= 2) return x.transpose(0, -1).clone().transpose(0, -1);
  if (x.ndim() == 0) return x;
  Tensor wide = Tensor::empty({x.dim(0), 2}, x.dtype());
  Tensor column = wide.select(1, 1);
  const Tensor& source = x;
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < source.numel(); ++i) column.data<T>()[2 * i] = source.data<T>()[i];
  });
  return column;
}

}  // namespace elinvar::test
