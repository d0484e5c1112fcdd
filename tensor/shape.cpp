#include "tensor/shape.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {

Shape::Shape(std::span<const int64_t> dims) : ndim_(static_cast<int>(dims.size())) {
  check(dims.size() <= kMaxDims, "[shape] at most {} dimensions are supported, got {}", kMaxDims, dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

Shape Shape::filled(int ndim, int64_t value) {
  Shape s;
  for (int i = 0; i < ndim; ++i) s.push_back(value);
  return s;
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t d : *this) n *= d;
  return n;
}

void Shape::push_back(int64_t extent) { insert(ndim_, extent); }

void Shape::erase(int i) {
  std::copy(dims_.begin() + i + 1, dims_.begin() + ndim_, dims_.begin() + i);
  dims_[static_cast<size_t>(--ndim_)] = 0;
}

void Shape::insert(int i, int64_t extent) {
  check(ndim_ < kMaxDims, "[shape] at most {} dimensions are supported", kMaxDims);
  std::copy_backward(dims_.begin() + i, dims_.begin() + ndim_, dims_.begin() + ndim_ + 1);
  dims_[static_cast<size_t>(i)] = extent;
  ++ndim_;
}

bool Shape::operator==(const Shape& other) const {
  return ndim_ == other.ndim_ && std::equal(begin(), end(), other.begin());
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = Shape::filled(shape.ndim(), 1);
  for (int i = shape.ndim() - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

Shape broadcast(const Shape& a, const Shape& b, const char* op) {
  const int n = std::max(a.ndim(), b.ndim());
  Shape out = Shape::filled(n, 1);
  for (int i = 1; i <= n; ++i) {
    const int64_t da = i <= a.ndim() ? a[a.ndim() - i] : 1;
    const int64_t db = i <= b.ndim() ? b[b.ndim() - i] : 1;
    check(da == db || da == 1 || db == 1,
          "[{}] shapes {} and {} do not broadcast: dimension -{} is {} and {}, and neither is 1", op, to_string(a),
          to_string(b), i, da, db);
    out[n - i] = da == 1 ? db : da;
  }
  return out;
}

int normalize_dim(int dim, int ndim, const char* op) {
  check(dim >= -ndim && dim < ndim, "[{}] dimension {} is out of range for {} dimensions", op, dim, ndim);
  return dim < 0 ? dim + ndim : dim;
}

std::string to_string(const Shape& shape) {
  return fmt::format("({}{})", fmt::join(shape.begin(), shape.end(), ", "), shape.ndim() == 1 ? "," : "");
}

}  // namespace elinvar
