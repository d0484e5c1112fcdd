#include "tensor/ops/compare.h"

#include <algorithm>

#include "tensor/op_check.h"
#include "tensor/strided.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

constexpr int64_t kGrain = 16384;  // least elements per thread

// Calls run(at, first, last) for disjoint parts of rows that cover everything. `at` has the operands' offsets at the
// start of the row; first .. last - 1 are positions in it.
template <int kOperands, class F>
void for_each_run(CpuStream& stream, const StridedRows<kOperands>& rows, F run) {
  const int64_t n = rows.row_length();
  stream.parallel_for(rows.rows() * n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t first = i % n, count = std::min(n - first, end - i);
      run(rows.offsets(i / n), first, first + count);
      i += count;
    }
  });
}

template <class T>
auto ordered(T x) {
  if constexpr (std::is_same_v<T, bf16>) return static_cast<float>(x);
  else return x;
}

}  // namespace

void compare(CpuStream& stream, const CompareArgs& args) {
  const StridedRows<3> rows(args.shape, {args.a_strides, args.b_strides, args.y_strides});
  const int64_t sa = rows.inner_stride(0), sb = rows.inner_stride(1), sy = rows.inner_stride(2);
  visit_dtype(args.a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto by = [&](auto holds) {
      for_each_run(stream, rows, [&](const auto& at, int64_t first, int64_t last) {
        const T *a = args.a.as<T>() + at[0], *b = args.b.as<T>() + at[1];
        uint8_t* y = args.y.as<uint8_t>() + at[2];
        for (int64_t i = first; i < last; ++i) y[i * sy] = holds(ordered(a[i * sa]), ordered(b[i * sb])) ? 1 : 0;
      });
    };
    switch (args.relation) {
      case Relation::equal:
        return by([](auto p, auto q) { return p == q; });
      case Relation::not_equal:
        return by([](auto p, auto q) { return p != q; });
      case Relation::less:
        return by([](auto p, auto q) { return p < q; });
      case Relation::less_equal:
        return by([](auto p, auto q) { return p <= q; });
    }
  });
}

void where(CpuStream& stream, const WhereArgs& args) {
  const StridedRows<4> rows(args.shape, {args.condition_strides, args.a_strides, args.b_strides, args.y_strides});
  const int64_t sc = rows.inner_stride(0), sa = rows.inner_stride(1), sb = rows.inner_stride(2),
                sy = rows.inner_stride(3);
  visit_dtype(args.a.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each_run(stream, rows, [&](const auto& at, int64_t first, int64_t last) {
      const uint8_t* c = args.condition.as<uint8_t>() + at[0];
      const T *a = args.a.as<T>() + at[1], *b = args.b.as<T>() + at[2];
      T* y = args.y.as<T>() + at[3];
      for (int64_t i = first; i < last; ++i) y[i * sy] = c[i * sc] != 0 ? a[i * sa] : b[i * sb];
    });
  });
}

namespace {

Tensor compared(const char* name, Relation relation, const Tensor& a, const Tensor& b) {
  check_same_dtype(name, a, b);
  const Shape shape = broadcast(a.shape(), b.shape(), name);
  Tensor y = Tensor::empty(shape, DType::u8, a.device());
  on(y.device(), [&](auto& stream) {
    compare(stream, CompareArgs{in(a), in(b), out(y), shape, a.expand(shape).strides(), b.expand(shape).strides(),
                                y.strides(), relation});
  });
  return y;
}

template <Relation kRelation>
Tensor compare_of(const Tensor& a, const Tensor& b) {
  constexpr const char* kNames[] = {"equal", "not_equal", "less", "less_equal"};
  return compared(kNames[static_cast<int>(kRelation)], kRelation, a, b);
}

Tensor where_of(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check(condition.dtype() == DType::u8, "[where] a uint8 condition expected, got {}", name_of(condition.dtype()));
  check_same_dtype("where", a, b);
  const Shape shape = broadcast(broadcast(a.shape(), b.shape(), "where"), condition.shape(), "where");
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  on(y.device(), [&](auto& stream) {
    where(stream, WhereArgs{in(condition), in(a), in(b), out(y), shape, condition.expand(shape).strides(),
                            a.expand(shape).strides(), b.expand(shape).strides(), y.strides()});
  });
  return y;
}

const Op kEqual("equal(a, b) -> y", compare_of<Relation::equal>);
const Op kNotEqual("not_equal(a, b) -> y", compare_of<Relation::not_equal>);
const Op kLess("less(a, b) -> y", compare_of<Relation::less>);
const Op kLessEqual("less_equal(a, b) -> y", compare_of<Relation::less_equal>);
const Op kWhere("where(condition, a, b) -> y", where_of);

}  // namespace

Tensor equal(const Tensor& a, const Tensor& b) { return kEqual(a, b); }
Tensor not_equal(const Tensor& a, const Tensor& b) { return kNotEqual(a, b); }
Tensor less(const Tensor& a, const Tensor& b) { return kLess(a, b); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return kLessEqual(a, b); }
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) { return kWhere(condition, a, b); }

}  // namespace elinvar
