#include "autograd/reduce.h"

#include "autograd/precision.h"
#include "tensor/ops/extrema.h"
#include "tensor/ops/gather.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/softmax.h"

namespace elinvar {
namespace {

Shape with_ones(Shape shape, const std::vector<int>& dims, const char* op) {
  const int n = shape.ndim();
  if (dims.empty()) return Shape::filled(n, 1);
  for (int d : dims) shape[normalize_dim(d, n, op)] = 1;
  return shape;
}

Var extremum(const Var& input, int dim, bool keepdim, Extremum (*op)(const Tensor&, int, bool)) {
  const Var x = widened(input);
  Extremum found = op(x.value(), dim, /*keepdim=*/true);
  const Shape kept = found.value.shape();
  const Tensor y = keepdim ? found.value : found.value.squeeze(dim);
  return record(y, {x}, [dim, kept, index = found.index, extent = x.dim(dim)](const Tensor& dy) {
    return std::vector<Tensor>{gather_backward(dy.reshape(kept), dim, index, extent)};
  });
}

}  // namespace

Var sum(const Var& x, std::vector<int> dims, bool keepdim) {
  Tensor y = sum(x.value(), dims, keepdim);
  return record(std::move(y), {x}, [shape = x.shape(), kept = with_ones(x.shape(), dims, "sum")](const Tensor& dy) {
    return std::vector<Tensor>{dy.reshape(kept).expand(shape)};
  });
}

// dx = dy / n
Var mean(const Var& x, std::vector<int> dims, bool keepdim) {
  Tensor y = mean(x.value(), dims, keepdim);
  const double n = y.numel() > 0 ? static_cast<double>(x.value().numel() / y.numel()) : 1.0;
  return record(std::move(y), {x}, [n, shape = x.shape(), kept = with_ones(x.shape(), dims, "mean")](const Tensor& dy) {
    return std::vector<Tensor>{div(dy, n).reshape(kept).expand(shape)};
  });
}

Var max(const Var& x, int dim, bool keepdim) { return extremum(x, dim, keepdim, max); }
Var min(const Var& x, int dim, bool keepdim) { return extremum(x, dim, keepdim, min); }

Var softmax(const Var& input) {
  const Var x = widened(input);
  const Tensor y = softmax(x.value());
  return record(y, {x}, [y](const Tensor& dy) { return std::vector<Tensor>{softmax_backward(dy, y)}; });
}

Var log_softmax(const Var& input) {
  const Var x = widened(input);
  const Tensor y = log_softmax(x.value());
  return record(y, {x}, [y](const Tensor& dy) { return std::vector<Tensor>{log_softmax_backward(dy, y)}; });
}

}  // namespace elinvar
