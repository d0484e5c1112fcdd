#include "tensor/ops/reduce.h"

#include "tensor/op_check.h"
#include "tensor/ops/column_sum.h"
#include "tensor/ops/row_sum.h"

namespace elinvar {
namespace {

using DimMask = unsigned;  // bit d: dimension d is reduced

DimMask mask_of(const Tensor& x, const std::vector<int>& dims, const char* op) {
  if (dims.empty()) return (1u << x.ndim()) - 1u;
  DimMask mask = 0;
  for (int dim : dims) {
    const int d = normalize_dim(dim, x.ndim(), op);
    check((mask >> d & 1u) == 0, "[{}] dimension {} is named twice", op, d);
    mask |= 1u << d;
  }
  return mask;
}

Shape reduced_shape(const Shape& shape, DimMask mask, bool keepdim) {
  Shape y;
  for (int d = 0; d < shape.ndim(); ++d) {
    if ((mask >> d & 1u) == 0) y.push_back(shape[d]);
    else if (keepdim) y.push_back(1);
  }
  return y;
}

// Extents without ones, with neighbours of one kind merged; reduced and kept groups alternate.
struct Groups {
  Shape extents;
  DimMask reduced = 0;

  Groups(const Shape& shape, DimMask mask) {
    for (int d = 0; d < shape.ndim(); ++d) {
      if (shape[d] == 1) continue;
      const unsigned kind = mask >> d & 1u;
      const int last = extents.ndim() - 1;
      if (last >= 0 && (reduced >> last & 1u) == kind) {
        extents[last] *= shape[d];
      } else {
        reduced |= kind << extents.ndim();
        extents.push_back(shape[d]);
      }
    }
  }
  bool ends_reduced() const { return extents.ndim() > 0 && (reduced >> (extents.ndim() - 1) & 1u) != 0; }
  void drop_last() {
    extents.erase(extents.ndim() - 1);
    reduced &= (1u << extents.ndim()) - 1u;
  }
};

Tensor reduce(const Tensor& input, DimMask mask, bool keepdim, bool mean, const char* op) {
  check_activation(op, input);
  const Shape shape = reduced_shape(input.shape(), mask, keepdim);
  if (input.numel() == 0) {
    check(!mean || shape.numel() == 0, "[{}] no elements to average in shape {}", op, to_string(input.shape()));
    return Tensor::zeros(shape, computed_in(input.dtype()), input.device());
  }
  const double divisor = mean ? static_cast<double>(input.numel() / shape.numel()) : 1.0;
  Groups groups(input.shape(), mask);
  Tensor y = input;
  if (groups.ends_reduced() || groups.reduced == 0) {
    const int64_t cols = groups.ends_reduced() ? groups.extents.back() : 1;
    if (groups.ends_reduced()) groups.drop_last();
    y = row_sum(y.to(computed_in(y.dtype())).reshape({y.numel() / cols, cols}), groups.reduced == 0 ? divisor : 1.0);
  }
  if (groups.reduced != 0) {
    // The order is kept groups except the last, then reduced ones, then the last, which is innermost already.
    const int last = groups.extents.ndim() - 1;
    std::vector<int> order;
    int64_t outer = 1, rows = 1;
    for (int g = 0; g < last; ++g)
      if ((groups.reduced >> g & 1u) == 0) order.push_back(g), outer *= groups.extents[g];
    for (int g = 0; g < last; ++g)
      if ((groups.reduced >> g & 1u) != 0) order.push_back(g), rows *= groups.extents[g];
    order.push_back(last);
    y = column_sum(y.reshape(groups.extents).permute(order).reshape({outer, rows, groups.extents[last]}), divisor);
  }
  return y.reshape(shape);
}

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return reduce(x, mask_of(x, dims, "sum"), keepdim, false, "sum");
}

Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return reduce(x, mask_of(x, dims, "mean"), keepdim, true, "mean");
}

Tensor sum_to(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  check(broadcast(shape, dy.shape(), "sum_to") == dy.shape(), "[sum_to] shape {} does not broadcast to {}",
        to_string(shape), to_string(dy.shape()));
  if (dy.numel() == shape.numel()) return dy.reshape(shape);
  DimMask mask = 0;
  const int added = dy.ndim() - shape.ndim();
  for (int d = 0; d < dy.ndim(); ++d)
    if (d < added || (shape[d - added] == 1 && dy.shape()[d] != 1)) mask |= 1u << d;
  return reduce(dy, mask, true, false, "sum_to").reshape(shape);
}

}  // namespace elinvar
