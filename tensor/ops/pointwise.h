#pragma once
// Functions of one and two tensors, element by element. pointwise_functions.inc defines the formula and the gradient of
// each; this header declares them.
//
//   Tensor y = tanh(x);                    // or unary<pointwise::Tanh>(x)
//   Tensor z = add(y, row);                // NumPy's broadcasting, any strides
//   Tensor d = unary_backward<pointwise::Tanh>(dy, y);
//
// Unary functions take float32 and float64, and on GPUs bfloat16 (precision.h). Binary ones also take int32 and int64:
// sums and products wrap, quotients truncate, and a division by zero gives 0. Other types, and operands of different
// types, throw UsageError.
#include <type_traits>

#include "tensor/precision.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {
namespace pointwise {

// The value from which, besides dy, the gradient of a unary function is computed.
enum class Saves { nothing, input, output };

template <Saves kSaves>
struct Unary {
  static constexpr Saves saves = kSaves;
  static constexpr bool activation = false;  // whether configurations may name it
};
template <Saves kSaves>
struct Activation : Unary<kSaves> {
  static constexpr bool activation = true;
};

// A number on which a function depends, and its default.
struct Parameter {
  const char* name;
  double value;
};
template <class Function>
concept HasParameter = requires {
  Function::parameter;
};
template <class Function>
constexpr double default_parameter() {
  if constexpr (HasParameter<Function>) return Function::parameter.value;
  else return 0;
}

template <class... Functions>
struct List {
  static constexpr int kSize = sizeof...(Functions);
  template <class Function>
  static constexpr int index_of() {
    constexpr bool same[] = {std::is_same_v<Function, Functions>...};
    int i = 0;
    while (!same[i]) ++i;
    return i;
  }
};
template <class, class... Functions>
using ListAfter = List<Functions...>;

#define FORMULA      \
  template <class V> \
  static V
#include "tensor/ops/pointwise_functions.inc"
#undef FORMULA

#define ELINVAR_NAME(name, Function) #name,
inline constexpr const char* kUnaryNames[] = {ELINVAR_UNARY_FUNCTIONS(ELINVAR_NAME, ELINVAR_NAME)};
inline constexpr const char* kBinaryNames[] = {ELINVAR_BINARY_FUNCTIONS(ELINVAR_NAME)};
#undef ELINVAR_NAME

}  // namespace pointwise

// Contiguous operands of n elements; `op` is an index into UnaryFunctions.
struct UnaryArgs {
  In x;
  Out y;
  int64_t n;
  int op;
  double parameter = 0;  // rounded to the type of the computation
};
void unary(CpuStream&, const UnaryArgs&);
template <class B>
void unary(GpuStream<B>&, const UnaryArgs&);

struct UnaryBackwardArgs {
  In dy, saved;
  Out dx;
  int64_t n;
  int op;
  double parameter = 0;
};
void unary_backward(CpuStream&, const UnaryBackwardArgs&);
template <class B>
void unary_backward(GpuStream<B>&, const UnaryBackwardArgs&);

// Operands with any strides over the result's shape; `op` is an index into BinaryFunctions. y may be a itself.
struct BinaryArgs {
  In a, b;
  Out y;
  Shape shape, a_strides, b_strides, y_strides;
  int op;
};
void binary(CpuStream&, const BinaryArgs&);
template <class B>
void binary(GpuStream<B>&, const BinaryArgs&);

template <class Function>
Tensor unary(const Tensor& x, double parameter = pointwise::default_parameter<Function>());
// Returns dx from dy and `saved`: x or y, as Function::saves says, or any tensor of the right shape if it says nothing.
// Overwrites a dy that is moved in if it is the only handle on its elements.
template <class Function>
Tensor unary_backward(Tensor dy, const Tensor& saved, double parameter = pointwise::default_parameter<Function>());
// The result has the type of the operands. On a GPU one may be float32 and the other bfloat16; the result is then
// float32, unless the float32 operand is a single number (of no dimension), which keeps the other's type.
template <class Function>
Tensor binary(const Tensor& a, const Tensor& b);
// Converts b once to the type that a is computed in.
template <class Function>
Tensor binary(const Tensor& a, double b) {
  return binary<Function>(a, Tensor::scalar(b, computed_in(a.dtype()), a.device()));
}
// y = f(y, b). b must broadcast to y's shape, and no two elements of y may share memory (as in an expanded view).
template <class Function>
void binary_into(Tensor& y, const Tensor& b);

#define ELINVAR_OF_ELEMENTS(name, Function)                                                                         \
  static_assert(!pointwise::HasParameter<pointwise::Function>, #name " has a parameter: it is listed as P, not F"); \
  inline Tensor name(const Tensor& x) { return unary<pointwise::Function>(x); }
#define ELINVAR_WITH_PARAMETER(name, Function)                                                   \
  inline Tensor name(const Tensor& x, double parameter = pointwise::Function::parameter.value) { \
    return unary<pointwise::Function>(x, parameter);                                             \
  }
#define ELINVAR_OF_TWO(name, Function) \
  inline Tensor name(const Tensor& a, const Tensor& b) { return binary<pointwise::Function>(a, b); }
ELINVAR_UNARY_FUNCTIONS(ELINVAR_OF_ELEMENTS, ELINVAR_WITH_PARAMETER)
ELINVAR_BINARY_FUNCTIONS(ELINVAR_OF_TWO)
#undef ELINVAR_OF_ELEMENTS
#undef ELINVAR_WITH_PARAMETER
#undef ELINVAR_OF_TWO

inline Tensor add(const Tensor& a, double b) { return binary<pointwise::Add>(a, b); }
inline Tensor sub(const Tensor& a, double b) { return binary<pointwise::Sub>(a, b); }
inline Tensor mul(const Tensor& a, double b) { return binary<pointwise::Mul>(a, b); }
inline Tensor div(const Tensor& a, double b) { return binary<pointwise::Div>(a, b); }

inline void add_into(Tensor& y, const Tensor& x) { binary_into<pointwise::Add>(y, x); }
// Returns sum + term. Adds in place if `sum` is moved in and the only handle on its storage, unless it is expanded.
Tensor add_to(Tensor sum, const Tensor& term);
inline void scale_into(Tensor& y, double factor) {
  binary_into<pointwise::Mul>(y, Tensor::scalar(factor, computed_in(y.dtype()), y.device()));
}

}  // namespace elinvar
