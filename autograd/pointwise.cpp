#include "autograd/pointwise.h"

#include "autograd/precision.h"
#include "tensor/base/check.h"
#include "tensor/ops/compare.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/reduce.h"

namespace elinvar {
namespace {

using Gradients = std::vector<Tensor>;
using pointwise::Saves;

template <class Function>
Var differentiable(const Var& x, double parameter = 0) {
  Tensor y = unary<Function>(x.value(), parameter);
  Tensor saved;
  if constexpr (Function::saves == Saves::input) saved = x.value();
  if constexpr (Function::saves == Saves::output) saved = y;
  Origin origin;
  if constexpr (Function::saves == Saves::input)
    origin.compute = [saved, parameter] { return unary<Function>(saved, parameter); };
  return record(
      std::move(y), {x},
      [saved, parameter](Tensor dy) {
        const Tensor s = Function::saves == Saves::nothing ? dy : saved;
        return Gradients{unary_backward<Function>(std::move(dy), s, parameter)};
      },
      std::move(origin));
}

// Returns the gradient of an operand that was broadcast to dy's shape: sum_to(gradient(), shape) if `wanted`.
template <class F>
Tensor operand_gradient(bool wanted, const Shape& shape, F gradient) {
  return wanted ? sum_to(gradient(), shape) : Tensor{};
}

// Returns the result of a function that selects one operand at each element, the first where `mask` is set, and records
// the operands' gradients.
Var selected(Tensor y, const Tensor& mask, const Var& a, const Var& b) {
  return record(
      std::move(y), {a, b},
      [mask, da = a.requires_grad(), db = b.requires_grad(), sa = a.shape(), sb = b.shape()](const Tensor& dy) {
        const Tensor zero = Tensor::scalar(0.0, dy.dtype(), dy.device());
        return Gradients{operand_gradient(da, sa, [&] { return where(mask, dy, zero); }),
                         operand_gradient(db, sb, [&] { return where(mask, zero, dy); })};
      });
}

}  // namespace

Var add(const Var& a, const Var& b) {
  return record(
      add(a.value(), b.value()), {a, b},
      [da = a.requires_grad(), db = b.requires_grad(), sa = a.shape(), sb = b.shape()](const Tensor& dy) {
        return Gradients{operand_gradient(da, sa, [&] { return dy; }), operand_gradient(db, sb, [&] { return dy; })};
      });
}

Var add_relu(const Var& a, const Var& b) {
  const Tensor y = add_relu(a.value(), b.value());
  return record(
      y, {a, b}, [y, da = a.requires_grad(), db = b.requires_grad(), sa = a.shape(), sb = b.shape()](Tensor dy) {
        const Tensor g = unary_backward<pointwise::Relu>(std::move(dy), y);
        return Gradients{operand_gradient(da, sa, [&] { return g; }), operand_gradient(db, sb, [&] { return g; })};
      });
}

Var sub(const Var& a, const Var& b) {
  return record(sub(a.value(), b.value()), {a, b},
                [da = a.requires_grad(), db = b.requires_grad(), sa = a.shape(), sb = b.shape()](const Tensor& dy) {
                  return Gradients{operand_gradient(da, sa, [&] { return dy; }),
                                   operand_gradient(db, sb, [&] { return neg(dy); })};
                });
}

Var mul(const Var& a, const Var& b) {
  const bool da = a.requires_grad(), db = b.requires_grad();
  const Tensor x = db ? a.value() : Tensor{}, z = da ? b.value() : Tensor{};
  Origin origin;
  if (da && db) origin.compute = [x, z] { return mul(x, z); };
  return record(
      mul(a.value(), b.value()), {a, b},
      [da, db, x, z, sa = a.shape(), sb = b.shape()](const Tensor& dy) {
        return Gradients{operand_gradient(da, sa, [&] { return mul(dy, z); }),
                         operand_gradient(db, sb, [&] { return mul(dy, x); })};
      },
      std::move(origin));
}

Var div(const Var& a, const Var& b) {
  const bool da = a.requires_grad(), db = b.requires_grad();
  const Tensor y = div(a.value(), b.value()), quotient = db ? y : Tensor{};
  return record(y, {a, b}, [da, db, quotient, z = b.value(), sa = a.shape(), sb = b.shape()](const Tensor& dy) {
    return Gradients{operand_gradient(da, sa, [&] { return div(dy, z); }),
                     operand_gradient(db, sb, [&] { return neg(div(mul(dy, quotient), z)); })};
  });
}

Var maximum(const Var& x, const Var& z) {
  const Var a = widened(x), b = widened(z);
  Tensor y = maximum(a.value(), b.value());
  return selected(std::move(y), less(b.value(), a.value()), a, b);
}

Var minimum(const Var& x, const Var& z) {
  const Var a = widened(x), b = widened(z);
  Tensor y = minimum(a.value(), b.value());
  return selected(std::move(y), less(a.value(), b.value()), a, b);
}

Var where(const Tensor& condition, const Var& x, const Var& z) {
  const Var a = widened(x), b = widened(z);
  return selected(where(condition, a.value(), b.value()), condition, a, b);
}

Var add(const Var& a, double b) {
  return record(add(a.value(), b), {a}, [](const Tensor& dy) { return Gradients{dy}; });
}

Var mul(const Var& a, double b) {
  return record(mul(a.value(), b), {a}, [b](const Tensor& dy) { return Gradients{mul(dy, b)}; });
}

#define ELINVAR_OF_ELEMENTS(name, Function) \
  Var name(const Var& x) { return differentiable<pointwise::Function>(x); }
#define ELINVAR_WITH_PARAMETER(name, Function) \
  Var name(const Var& x, double parameter) { return differentiable<pointwise::Function>(x, parameter); }
ELINVAR_UNARY_FUNCTIONS(ELINVAR_OF_ELEMENTS, ELINVAR_WITH_PARAMETER)
#undef ELINVAR_OF_ELEMENTS
#undef ELINVAR_WITH_PARAMETER

Var dropout(const Var& x, double p, const Rng& rng) {
  return record(dropout(x.value(), p, rng), {x},
                [p, rng](Tensor dy) { return Gradients{dropout(std::move(dy), p, rng)}; });
}

Var cast(const Var& x, DType dtype) {
  check(is_floating(dtype) && is_floating(x.dtype()), "[cast] floating types expected, got {} to {}",
        name_of(x.dtype()), name_of(dtype));
  return record(x.value().to(dtype), {x}, [from = x.dtype()](const Tensor& dy) { return Gradients{dy.to(from)}; });
}

}  // namespace elinvar
