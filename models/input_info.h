#pragma once
// The properties of a network that the data determine.
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace elinvar {

// An input of a network after the first one.
struct FurtherInput {
  Shape sample;  // of one sample
  DType dtype = DType::f32;
  std::vector<int64_t> symbols = {};   // of each position of a row of indices
  std::vector<int64_t> most_ids = {};  // if not empty: symbols are those of columns of so many positions each
};

struct InputInfo {
  Shape sample;                        // of one sample: images (H, W, C), features (F), tokens (T)
  int64_t classes = 0;                 // outputs: classes of a classifier, vocabulary size of a language model, numbers
  DType dtype = DType::f32;            // i32: the sample is a sequence of tokens or other indices
  std::vector<int64_t> symbols = {};   // of each position of a row of indices, or one for all; empty: `classes`
  std::vector<int64_t> most_ids = {};  // as of FurtherInput
  std::vector<FurtherInput> further = {};
};

}  // namespace elinvar
