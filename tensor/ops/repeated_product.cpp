#include "tensor/ops/repeated_product.h"

#include "tensor/op_check.h"
#include "tensor/ops/matmul.h"
#include "tensor/product.h"

namespace elinvar {
namespace {

template <class T>
Strips strips_of(const Tensor& b) {
  return Strips(b.dim(1), tile_extent(T{}, b.dim(1)));
}

// The bytes of the packed factor; 0 where matmul() reads it in place, or on a GPU.
int64_t packed_bytes(const Tensor& b, int64_t rows) {
  check(b.ndim() == 2, "[repeated_product] a matrix expected, shape is {}", to_string(b.shape()));
  return visit_float(b.dtype(), [&](auto zero) -> int64_t {
    using T = decltype(zero);
    const Strips strips = strips_of<T>(b);
    if (b.device().kind != DeviceKind::cpu || b.numel() == 0 || rows <= kTilesInPlace * strips.extent.rows) return 0;
    return b.dim(0) * (strips.padded_columns() + strips.extent.lanes) * static_cast<int64_t>(sizeof(T));
  });
}

}  // namespace

RepeatedProduct::RepeatedProduct(Tensor b, int64_t rows)
    : b_(b.contiguous() ? std::move(b) : b.to_contiguous()),
      packed_(packed_bytes(b_, rows)),
      packs_(packed_bytes(b_, rows) > 0) {
  if (!packs_) return;
  visit_float(b_.dtype(), [&](auto zero) {
    using T = decltype(zero);
    pack_b(cpu_stream(), static_cast<const T*>(b_.raw()), b_.dim(1), 1, 0, b_.dim(0), 0, strips_of<T>(b_),
           reinterpret_cast<T*>(packed_.data()));
  });
}

Tensor RepeatedProduct::operator()(const Tensor& a, const Tensor& bias) const {
  if (!packs_) return matmul(a, b_, bias);
  const int64_t m = a.dim(0), k = b_.dim(0), n = b_.dim(1);
  invariant(a.ndim() == 2 && a.dim(1) == k && a.contiguous() && a.dtype() == b_.dtype(), "A fits B");
  Tensor c = Tensor::empty({m, n}, b_.dtype(), b_.device());
  const Tensor added = bias.defined() ? operand("repeated_product", "the bias", bias, {n}, c) : bias;
  visit_float(b_.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const MatrixRows<T> rows{.a = static_cast<const T*>(a.raw()),
                             .a_row = k,
                             .a_col = 1,
                             .c = static_cast<T*>(c.raw()),
                             .c_row = n,
                             .m = m,
                             .whole = {{0, 0, k}}};
    const Epilogue<T> epilogue{.bias = added.defined() ? static_cast<const T*>(added.raw()) : nullptr};
    const Product<T> product(reinterpret_cast<const T*>(packed_.data()), strips_of<T>(b_), 0, k, k, epilogue);
    product.run(cpu_stream(), std::span(&rows, 1));
  });
  return c;
}

}  // namespace elinvar
