#pragma once
// A kernel's view of a tensor: an address and a type. Arguments of ops are structs of views and plain numbers, so that
// they can be passed to a GPU kernel unchanged (it may call constexpr functions). Shapes are checked before.
#include "tensor/dtype.h"

namespace elinvar {

struct In {
  const void* data = nullptr;
  DType dtype = DType::f32;
  template <class T>
  constexpr const T* as() const {
    return static_cast<const T*>(data);
  }
};

struct Out {
  void* data = nullptr;
  DType dtype = DType::f32;
  template <class T>
  constexpr T* as() const {
    return static_cast<T*>(data);
  }
};

// The exponents of an exact product's result (tensor/quantized.h): C[i, j] = S[i, j] 2^(rows[i] + columns[j] - 26).
struct Exponents {
  const int32_t* rows = nullptr;
  const int32_t* columns = nullptr;
};

}  // namespace elinvar
