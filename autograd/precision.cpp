#include "autograd/precision.h"

#include <utility>

namespace elinvar {
namespace {

constinit thread_local Precision current = Precision::portable;

}  // namespace

Precision product_precision() { return current; }

PrecisionScope::PrecisionScope(Precision precision) : previous_(std::exchange(current, precision)) {}
PrecisionScope::~PrecisionScope() { current = previous_; }

}  // namespace elinvar
