#include "autograd/precision.h"

#include <utility>

#include "autograd/pointwise.h"

namespace elinvar {
namespace {

constinit thread_local Precision current = Precision::portable;

}  // namespace

Precision product_precision() { return current; }

DType activation_type(DType t, Precision precision) {
  return precision == Precision::bf16 && t == DType::f32 ? DType::bf16 : t;
}

Var widened(const Var& x) { return x.dtype() == DType::bf16 ? cast(x, DType::f32) : x; }

PrecisionScope::PrecisionScope(Precision precision) : previous_(std::exchange(current, precision)) {}
PrecisionScope::~PrecisionScope() { current = previous_; }

}  // namespace elinvar
