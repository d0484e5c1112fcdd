#include "tensor/ops/gather.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "tensor/numerics.h"
#include "tensor/op_check.h"
#include "tensor/ops/index.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

// Sums x[0 .. n-1], which is overwritten, by rule 12.
template <class T>
T column_sum_in_place(T* x, int64_t n) {
  int64_t leaves = 0;
  for (int64_t begin = 0; begin < n; begin += kColumnLeaf) {
    T acc{0};
    for (int64_t i = begin; i < std::min(n, begin + kColumnLeaf); ++i) acc += x[i];
    x[leaves++] = acc;
  }
  for (int64_t s = 1; s < leaves; s *= 2)
    for (int64_t i = 0; i + s < leaves; i += 2 * s) x[i] += x[i + s];
  return leaves > 0 ? T{0} + x[0] : T{0};
}

struct Extents {
  int64_t outer = 1, inner = 1;
};

Extents around(const Shape& shape, int dim) {
  Extents e;
  for (int i = 0; i < shape.ndim(); ++i)
    if (i != dim) (i < dim ? e.outer : e.inner) *= shape[i];
  return e;
}

// Sorts the picks of each line of an index (outer, picks, inner) by target; picks of one target are ascending.
Tensor by_target(const Tensor& index, int64_t outer, int64_t picks, int64_t inner) {
  Tensor order = Tensor::empty({outer, picks, inner}, DType::i64);
  std::vector<int64_t> line(static_cast<size_t>(picks));
  for (int64_t i = 0; i < outer * inner; ++i) {
    const int64_t first = i / inner * picks * inner + i % inner;
    const int64_t* target = index.data<int64_t>() + first;
    std::iota(line.begin(), line.end(), 0);
    std::ranges::stable_sort(line, {}, [&](int64_t k) { return target[k * inner]; });
    for (int64_t k = 0; k < picks; ++k) order.data<int64_t>()[first + k * inner] = line[static_cast<size_t>(k)];
  }
  return order;
}

}  // namespace

void gather(CpuStream& stream, const GatherArgs& a) {
  visit_float(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.parallel_for(a.outer * a.picks, 8192 / (a.inner + 1) + 1, [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r) {
        const T* x = a.x.as<T>() + r / a.picks * a.extent * a.inner;
        const int64_t* index = a.index.as<int64_t>() + r * a.inner;
        T* y = a.y.as<T>() + r * a.inner;
        for (int64_t c = 0; c < a.inner; ++c) y[c] = x[index[c] * a.inner + c];
      }
    });
  });
}

void gather_backward(CpuStream& stream, const GatherBackwardArgs& a) {
  visit_float(a.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.parallel_for(a.outer * a.inner, 8192 / (a.picks + a.extent + 1) + 1, [&](int64_t b, int64_t e) {
      std::vector<int64_t> end(static_cast<size_t>(a.extent) + 1);
      std::vector<T> sorted(static_cast<size_t>(a.picks));
      for (int64_t line = b; line < e; ++line) {
        const int64_t o = line / a.inner, c = line % a.inner;
        const T* dy = a.dy.as<T>() + o * a.picks * a.inner + c;
        const int64_t* index = a.index.as<int64_t>() + o * a.picks * a.inner + c;
        T* dx = a.dx.as<T>() + o * a.extent * a.inner + c;
        // end[v] is the beginning of the terms of target v and, once all terms are in place, their end.
        std::fill(end.begin(), end.end(), 0);
        for (int64_t i = 0; i < a.picks; ++i) ++end[static_cast<size_t>(index[i * a.inner]) + 1];
        for (size_t v = 1; v < end.size(); ++v) end[v] += end[v - 1];
        for (int64_t i = 0; i < a.picks; ++i) {
          const auto at = static_cast<size_t>(end[static_cast<size_t>(index[i * a.inner])]++);
          sorted[at] = dy[i * a.inner];
        }
        int64_t begin = 0;
        for (int64_t v = 0; v < a.extent; ++v) {
          const int64_t last = end[static_cast<size_t>(v)];
          dx[v * a.inner] = column_sum_in_place(sorted.data() + begin, last - begin);
          begin = last;
        }
      }
    });
  });
}

namespace {

Tensor gather_of(const Tensor& input, int dim, const Tensor& index) {
  check_float("gather", input);
  const int d = normalize_dim(dim, input.ndim(), "gather");
  Shape wanted = input.shape();
  if (index.ndim() == input.ndim()) wanted[d] = index.dim(d);
  check(index.shape() == wanted, "[gather] the index, {}, must have the extents of x, {}, except in dimension {}",
        to_string(index.shape()), to_string(input.shape()), d);
  const Tensor x = input.to_contiguous(), picks = checked_index("gather", index, x.dim(d)).to(x.device());
  Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
  const Extents e = around(x.shape(), d);
  on(x.device(), [&](auto& stream) {
    gather(stream, GatherArgs{in(x), in(picks), out(y), e.outer, x.dim(d), picks.dim(d), e.inner});
  });
  return y;
}

Tensor gather_backward_of(const Tensor& gradient, int dim, const Tensor& index, int64_t extent) {
  check_float("gather_backward", gradient);
  check_same_shape("gather_backward", gradient, index);
  const int d = normalize_dim(dim, gradient.ndim(), "gather_backward");
  const Tensor dy = gradient.to_contiguous(), checked = checked_index("gather_backward", index, extent);
  const int64_t picks = index.dim(d);
  Shape shape = dy.shape();
  shape[d] = extent;
  const Extents e = around(shape, d);
  Tensor dx, order;
  if (dy.device() == Device{}) {
    dx = Tensor::empty(shape, dy.dtype());
  } else {
    dx = Tensor::zeros(shape, dy.dtype(), dy.device());
    order = by_target(checked, e.outer, picks, e.inner).to(dy.device());
  }
  const Tensor there = checked.to(dy.device());
  on(dy.device(), [&](auto& stream) {
    gather_backward(stream, GatherBackwardArgs{in(dy), in(there), order.defined() ? in(order) : In{}, out(dx), e.outer,
                                               extent, picks, e.inner});
  });
  return dx;
}

const Op kGather("gather(x, dim, index) -> y", gather_of);
const Op kGatherBackward("gather_backward(dy, dim, index, extent) -> dx", gather_backward_of);

}  // namespace

Tensor gather(const Tensor& x, int dim, const Tensor& index) { return kGather(x, dim, index); }

Tensor gather_backward(const Tensor& dy, int dim, const Tensor& index, int64_t extent) {
  return kGatherBackward(dy, dim, index, extent);
}

}  // namespace elinvar
