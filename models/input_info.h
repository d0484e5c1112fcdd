#pragma once
// The properties of a network that the data determine.
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace elinvar {

struct InputInfo {
  Shape sample;              // of one sample: images (H, W, C), features (F), tokens (T)
  int64_t classes = 0;       // of a classifier; vocabulary size of a language model
  DType dtype = DType::f32;  // i32: the sample is a sequence of tokens
};

}  // namespace elinvar
