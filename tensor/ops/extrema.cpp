#include "tensor/ops/extrema.h"

#include <algorithm>

#include "tensor/op_check.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

// Columns [begin, end) of one (extent, inner) matrix, row by row.
template <bool kLargest, class T>
void extrema_columns(const T* x, T* value, int64_t* index, int64_t extent, int64_t inner, int64_t begin, int64_t end) {
  std::copy(x + begin, x + end, value + begin);
  std::fill(index + begin, index + end, 0);
  for (int64_t k = 1; k < extent; ++k) {
    const T* row = x + k * inner;
    for (int64_t c = begin; c < end; ++c) {
      const T a = row[c], best = value[c];
      const bool better = kLargest ? best < a : a < best;
      if (better || (a != a && best == best)) {
        value[c] = a;
        index[c] = k;
      }
    }
  }
}

Extremum launch(const char* op, const Tensor& input, int dim, bool keepdim, bool largest) {
  check_float(op, input);
  const int d = normalize_dim(dim, input.ndim(), op);
  const Tensor x = input.to_contiguous();
  check(x.dim(d) > 0, "[{}] dimension {} of shape {} has no elements", op, d, to_string(x.shape()));
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < x.ndim(); ++i) (i < d ? outer : inner) *= i == d ? 1 : x.dim(i);
  Shape shape = x.shape();
  if (keepdim) shape[d] = 1;
  else shape.erase(d);
  Extremum y{Tensor::empty(shape, x.dtype(), x.device()), Tensor::empty(shape, DType::i64, x.device())};
  on(x.device(), [&](auto& stream) {
    extrema(stream, ExtremaArgs{in(x), out(y.value), out(y.index), outer, x.dim(d), inner, largest});
  });
  return y;
}

}  // namespace

void extrema(CpuStream& stream, const ExtremaArgs& a) {
  visit_float(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto columns = a.largest ? extrema_columns<true, T> : extrema_columns<false, T>;
    stream.parallel_for(a.outer * a.inner, 16384 / a.extent + 1, [&](int64_t b, int64_t e) {
      while (b < e) {
        const int64_t o = b / a.inner, first = b % a.inner, last = std::min(a.inner, first + (e - b));
        columns(a.x.as<T>() + o * a.extent * a.inner, a.value.as<T>() + o * a.inner,
                a.index.as<int64_t>() + o * a.inner, a.extent, a.inner, first, last);
        b += last - first;
      }
    });
  });
}

namespace {

const Op kMax(
    "max(x, dim, keepdim)",
    +[](const Tensor& x, int dim, bool keepdim) { return launch("max", x, dim, keepdim, true); });
const Op kMin(
    "min(x, dim, keepdim)",
    +[](const Tensor& x, int dim, bool keepdim) { return launch("min", x, dim, keepdim, false); });

}  // namespace

Extremum max(const Tensor& x, int dim, bool keepdim) { return kMax(x, dim, keepdim); }
Extremum min(const Tensor& x, int dim, bool keepdim) { return kMin(x, dim, keepdim); }
Tensor argmax(const Tensor& x, int dim, bool keepdim) { return max(x, dim, keepdim).index; }
Tensor argmin(const Tensor& x, int dim, bool keepdim) { return min(x, dim, keepdim).index; }

}  // namespace elinvar
