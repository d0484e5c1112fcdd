#include "tensor/ops/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/pointwise.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <string>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/ops/pointwise-inl.h"
#include "tensor/strided.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Calls f with the function at index `index` of a list.
template <class... Functions, class F>
void with_function(pointwise::List<Functions...>, int index, F f) {
  int i = 0;
  static_cast<void>(((i++ == index ? (f(Functions{}), true) : false) || ...));
}

template <class Function, class T>
void unary_elements(Function, const T* x, T* y, int64_t n, T parameter) {
  using V = Vec<T>;
  const V p = V::set(parameter);
  for (int64_t i = 0; i < n; i += V::kLanes) value_of<Function>(V::load(x + i, n - i), p).store(y + i, n - i);
}

template <class Function, class T>
void gradient_elements(Function, const T* dy, const T* s, T* dx, int64_t n, T parameter) {
  using V = Vec<T>;
  const V p = V::set(parameter);
  for (int64_t i = 0; i < n; i += V::kLanes)
    gradient_of<Function>(V::load(dy + i, n - i), V::load(s + i, n - i), p).store(dx + i, n - i);
}

template <class Function, class T>
HWY_INLINE void binary_elements(Function, const T* a, const T* b, T* y, int64_t n) {
  using V = Vec<T>;
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) Function::f(V::load(a + i), V::load(b + i)).store(y + i);
  if (i < n) Function::f(V::load(a + i, n - i), V::load(b + i, n - i)).store(y + i, n - i);
}

constexpr int64_t kBlock = 256;

// Computes a row in blocks. An operand whose elements are not adjacent is first gathered into a buffer, so that one
// loop serves every layout; a repeated element (stride 0) is spread once per row.
template <class Function, class T>
void binary_row(Function function, const T* a, int64_t sa, const T* b, int64_t sb, T* y, int64_t sy, int64_t n) {
  T a_buffer[kBlock], b_buffer[kBlock], y_buffer[kBlock];
  const auto block = [](const T* row, int64_t stride, int64_t i, int64_t count, T* buffer) HWY_ATTR -> const T* {
    if (stride == 1) return row + i;
    if (stride != 0 || i == 0)
      for (int64_t j = 0; j < count; ++j) buffer[j] = row[(i + j) * stride];
    return buffer;
  };
  if (sa == 1 && sb == 1 && sy == 1) return binary_elements(function, a, b, y, n);
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    T* to = sy == 1 ? y + i : y_buffer;
    binary_elements(function, block(a, sa, i, count, a_buffer), block(b, sb, i, count, b_buffer), to, count);
    if (sy != 1)
      for (int64_t j = 0; j < count; ++j) y[(i + j) * sy] = to[j];
  }
}

void unary_range(const UnaryArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    with_function(formulas::UnaryFunctions{}, a.op, [&](auto function) HWY_ATTR {
      unary_elements(function, a.x.as<T>() + begin, a.y.as<T>() + begin, end - begin, static_cast<T>(a.parameter));
    });
  });
}

void unary_backward_range(const UnaryBackwardArgs& a, int64_t begin, int64_t end) {
  visit_element(a.dy.dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    with_function(formulas::UnaryFunctions{}, a.op, [&](auto function) HWY_ATTR {
      gradient_elements(function, a.dy.as<T>() + begin, a.saved.as<T>() + begin, a.dx.as<T>() + begin, end - begin,
                        static_cast<T>(a.parameter));
    });
  });
}

void binary_range(const BinaryArgs& a, const StridedRows<3>& rows, int64_t begin, int64_t end) {
  const int64_t n = rows.row_length(), sa = rows.inner_stride(0), sb = rows.inner_stride(1), sy = rows.inner_stride(2);
  visit_any_element(a.y.dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bf16> && !std::is_same_v<T, uint8_t>) {
      with_function(formulas::BinaryFunctions{}, a.op, [&](auto function) HWY_ATTR {
        for (int64_t i = begin; i < end;) {
          const int64_t row = i / n, first = i % n, count = std::min(n - first, end - i);
          const auto at = rows.offsets(row);
          binary_row(function, a.a.as<T>() + at[0] + first * sa, sa, a.b.as<T>() + at[1] + first * sb, sb,
                     a.y.as<T>() + at[2] + first * sy, sy, count);
          i += count;
        }
      });
    }
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(unary_range);
HWY_EXPORT(unary_backward_range);
HWY_EXPORT(binary_range);

namespace {

constexpr int64_t kGrain = 16384;  // least elements per thread

void check_arithmetic(const char* op, const Tensor& x) {
  const DType t = x.dtype();
  if (t == DType::bf16 && x.device().kind != DeviceKind::cpu) return;
  check(t == DType::f32 || t == DType::f64 || t == DType::i32 || t == DType::i64,
        "[{}] float32, float64, int32 or int64 expected, got {}; convert with to()", op, name_of(t));
  check_width(op, x);
}

// Requires operands of one type, or bfloat16 and float32.
void check_types(const char* op, const Tensor& a, const Tensor& b) {
  check_arithmetic(op, a);
  check_arithmetic(op, b);
  if (computed_in(a.dtype()) == DType::f32 && computed_in(b.dtype()) == DType::f32) check_same_device(op, a, b);
  else check_same_dtype(op, a, b);
}

// Returns the type of a result.
DType type_of(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype() || b.ndim() == 0) return a.dtype();
  return a.ndim() == 0 ? b.dtype() : DType::f32;
}

// Returns x's strides when it is broadcast to `shape`.
Shape strides_over(const Tensor& x, const Shape& shape) {
  return x.shape() == shape ? x.strides() : x.expand(shape).strides();
}

}  // namespace

void unary(CpuStream& stream, const UnaryArgs& a) {
  stream.parallel_for(a.n, kGrain, [&](int64_t b, int64_t e) { ELINVAR_KERNEL(unary_range, a.x.dtype)(a, b, e); });
}

void unary_backward(CpuStream& stream, const UnaryBackwardArgs& a) {
  stream.parallel_for(a.n, kGrain, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(unary_backward_range, a.dy.dtype)(a, b, e);
  });
}

void binary(CpuStream& stream, const BinaryArgs& a) {
  const StridedRows<3> rows(a.shape, {a.a_strides, a.b_strides, a.y_strides});
  stream.parallel_for(a.shape.numel(), kGrain, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(binary_range, a.y.dtype)(a, rows, b, e);
  });
}

namespace {

Tensor unary_of(int op, const Tensor& input, double parameter) {
  check_activation(pointwise::kUnaryNames[op], input);
  const Tensor x = input.to_contiguous();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  on(x.device(), [&](auto& stream) { unary(stream, UnaryArgs{in(x), out(y), x.numel(), op, parameter}); });
  return y;
}

Tensor unary_backward_of(int op, Tensor dy, const Tensor& saved, double parameter) {
  const char* name = pointwise::kUnaryNames[op];
  check_activation(name, dy);
  check_same_dtype(name, dy, saved);
  check_same_shape(name, dy, saved);
  const Tensor s = saved.to_contiguous();
  dy = dy.to_contiguous();
  const In g = in(dy);
  Tensor dx = onto(dy);
  on(dx.device(), [&](auto& stream) {
    unary_backward(stream, UnaryBackwardArgs{g, in(s), out(dx), dx.numel(), op, parameter});
  });
  return dx;
}

Tensor binary_of(int op, const Tensor& a, const Tensor& b) {
  const char* name = pointwise::kBinaryNames[op];
  check_types(name, a, b);
  const Shape shape = a.shape() == b.shape() ? a.shape() : broadcast(a.shape(), b.shape(), name);
  Tensor y = Tensor::empty(shape, type_of(a, b), a.device());
  on(y.device(), [&](auto& stream) {
    binary(stream,
           BinaryArgs{in(a), in(b), out(y), shape, strides_over(a, shape), strides_over(b, shape), y.strides(), op});
  });
  return y;
}

void write_binary(int op, Tensor& y, const Tensor& b) {
  const char* name = pointwise::kBinaryNames[op];
  check_types(name, y, b);
  if (b.shape() != y.shape() && broadcast(y.shape(), b.shape(), name) != y.shape())
    check(false, "[{}] an operand of shape {} does not fit into shape {}", name, to_string(b.shape()),
          to_string(y.shape()));
  for (int d = 0; d < y.ndim(); ++d)
    check(y.strides()[d] != 0 || y.shape()[d] <= 1, "[{}] cannot write in place: dimension {} is an expanded view",
          name, d);
  on(y.device(), [&](auto& stream) {
    binary(stream,
           BinaryArgs{in(y), in(b), out(y), y.shape(), y.strides(), strides_over(b, y.shape()), y.strides(), op});
  });
}

Tensor sum_of(Tensor sum, const Tensor& term) {
  if (!sum.unique() || !sum.contiguous()) return add(sum, term);
  add_into(sum, term);
  return sum;
}

// The op objects of a function and its gradient. Parameter is double for a function with a parameter, else absent.
template <class Function, class... Parameter>
struct UnaryObjects {
  static constexpr int kOp = pointwise::UnaryFunctions::index_of<Function>();
  static double number(double parameter = 0) { return parameter; }
  static std::string signature(const std::string& before, const std::string& after) {
    std::string text = pointwise::kUnaryNames[kOp] + before;
    if constexpr (pointwise::HasParameter<Function>) text += std::string(", ") + Function::parameter.name;
    return text + after;
  }

  Op<Tensor(const Tensor&, Parameter...)> value{signature("(x", ") -> y"), [](const Tensor& x, Parameter... parameter) {
                                                  return unary_of(kOp, x, number(parameter...));
                                                }};
  Op<Tensor(Tensor, const Tensor&, Parameter...)> gradient{
      signature("_backward(dy, saved", ") -> dx"), [](Tensor dy, const Tensor& saved, Parameter... parameter) {
        return unary_backward_of(kOp, std::move(dy), saved, number(parameter...));
      }};
};

template <class Function>
struct BinaryObjects {
  static constexpr int kOp = pointwise::BinaryFunctions::index_of<Function>();
  Op<Tensor(const Tensor&, const Tensor&)> value{pointwise::kBinaryNames[kOp] + std::string("(a, b) -> y"),
                                                 [](const Tensor& a, const Tensor& b) { return binary_of(kOp, a, b); }};
  Op<void(Tensor&, const Tensor&)> into{pointwise::kBinaryNames[kOp] + std::string("_into(y, b)"),
                                        [](Tensor& y, const Tensor& b) { write_binary(kOp, y, b); }};
};

template <class Function>
const UnaryObjects<Function> kUnary{};
template <pointwise::HasParameter Function>
const UnaryObjects<Function, double> kUnary<Function>{};
template <class Function>
const BinaryObjects<Function> kBinary{};
const Op kAddTo("add_to(sum, term) -> sum", sum_of);

}  // namespace

template <class Function>
Tensor unary(const Tensor& x, double parameter) {
  if constexpr (pointwise::HasParameter<Function>) return kUnary<Function>.value(x, parameter);
  else return kUnary<Function>.value(x);
}

template <class Function>
Tensor unary_backward(Tensor dy, const Tensor& saved, double parameter) {
  if constexpr (pointwise::HasParameter<Function>) return kUnary<Function>.gradient(std::move(dy), saved, parameter);
  else return kUnary<Function>.gradient(std::move(dy), saved);
}

template <class Function>
Tensor binary(const Tensor& a, const Tensor& b) {
  return kBinary<Function>.value(a, b);
}

template <class Function>
void binary_into(Tensor& y, const Tensor& b) {
  kBinary<Function>.into(y, b);
}

#define ELINVAR_UNARY(name, Function)                                \
  template Tensor unary<pointwise::Function>(const Tensor&, double); \
  template Tensor unary_backward<pointwise::Function>(Tensor, const Tensor&, double);
#define ELINVAR_BINARY(name, Function)                                       \
  template Tensor binary<pointwise::Function>(const Tensor&, const Tensor&); \
  template void binary_into<pointwise::Function>(Tensor&, const Tensor&);
ELINVAR_UNARY_FUNCTIONS(ELINVAR_UNARY, ELINVAR_UNARY)
ELINVAR_BINARY_FUNCTIONS(ELINVAR_BINARY)
#undef ELINVAR_UNARY
#undef ELINVAR_BINARY

Tensor add_to(Tensor sum, const Tensor& term) { return kAddTo(std::move(sum), term); }

}  // namespace elinvar
#endif
