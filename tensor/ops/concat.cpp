#include "tensor/ops/concat.h"

#include "tensor/op_check.h"
#include "tensor/ops/copy.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

Tensor concat_of(const std::vector<Tensor>& parts, int dim) {
  check(!parts.empty(), "[concat] nothing to join");
  const Tensor& first = parts.front();
  const int d = normalize_dim(dim, first.ndim(), "concat");
  Shape shape = first.shape();
  shape[d] = 0;
  for (const Tensor& part : parts) {
    check_same_dtype("concat", first, part);
    Shape fitting = first.shape();
    if (part.ndim() == first.ndim()) fitting[d] = part.dim(d);
    check(part.shape() == fitting, "[concat] shapes {} and {} may differ in dimension {} only",
          to_string(first.shape()), to_string(part.shape()), d);
    shape[d] += part.dim(d);
  }
  Tensor y = Tensor::empty(shape, first.dtype(), first.device());
  int64_t at = 0;
  for (const Tensor& part : parts) {
    Tensor place = y.slice(d, at, at + part.dim(d));
    copy(part, place);
    at += part.dim(d);
  }
  return y;
}

Tensor pad_of(const Tensor& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after, double value) {
  const auto n = static_cast<size_t>(x.ndim());
  check(before.size() == n && after.size() == n, "[pad] {} and {} widths given for shape {}", before.size(),
        after.size(), to_string(x.shape()));
  Shape shape = x.shape();
  for (size_t d = 0; d < n; ++d) {
    check(before[d] >= 0 && after[d] >= 0, "[pad] widths must not be negative, got {} and {} for dimension {}",
          before[d], after[d], d);
    shape[static_cast<int>(d)] += before[d] + after[d];
  }
  Tensor y = Tensor::full(shape, value, x.dtype(), x.device());
  Tensor place = y;
  for (int d = 0; d < x.ndim(); ++d) {
    const int64_t first = before[static_cast<size_t>(d)];
    place = place.slice(d, first, first + x.dim(d));
  }
  copy(x, place);
  return y;
}

const Op kConcat("concat(parts, dim) -> y", concat_of);
const Op kPad("pad(x, before, after, value) -> y", pad_of);

}  // namespace

Tensor concat(const std::vector<Tensor>& parts, int dim) { return kConcat(parts, dim); }

Tensor pad(const Tensor& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after, double value) {
  return kPad(x, before, after, value);
}

}  // namespace elinvar
