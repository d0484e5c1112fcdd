#pragma once
// Products of one factor B with many A, one after another, such as those of the steps of an LSTM. Where matmul() on the
// CPU packs B, it is packed once for all of them. Results have the bits of matmul().
#include "tensor/scratch.h"
#include "tensor/tensor.h"

namespace elinvar {

class RepeatedProduct {
 public:
  // b (k, n) must not change before the last product. Each A will have `rows` rows.
  RepeatedProduct(Tensor b, int64_t rows);
  // a (rows, k), contiguous and of b's type -> a b (rows, n), plus `bias` (n) in every row if it is defined
  Tensor operator()(const Tensor& a, const Tensor& bias = {}) const;

 private:
  Tensor b_;
  Scratch<char> packed_;  // empty if matmul() multiplies
  bool packs_;
};

}  // namespace elinvar
