#pragma once
// A dataset of tensors in memory, the shortest way to train on your own data.
//
//   register_dataset({"squares", [](Settings& s, Split split) {
//                       ...
//                       return tensor_dataset({.inputs = points, .targets = labels, .classes = 2});
//                     }});
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "tensor/tensor.h"

namespace elinvar {

struct TensorSamples {
  Tensor inputs;        // N samples: features (N, F) or images (N, H, W, C) float32, tokens or categories (N, T) int32
  Tensor targets;       // labels (N) or next tokens (N, T), int64; or numbers (N, ..), float32
  int64_t classes = 0;  // labels, or symbols in the vocabulary; 0 for numbers
  std::vector<std::string> class_names = {};
  std::vector<Tensor> further_inputs = {};          // of networks with several: each (N, ..)
  std::vector<std::vector<int64_t>> symbols = {};   // Field::symbols of each input; may be empty
  std::vector<std::vector<int64_t>> most_ids = {};  // Field::most_ids of each input; may be empty
  std::function<std::string()> tokenizer = {};      // Dataset::tokenizer_json; may be empty
};

// Samples do not depend on draws; the digest covers all samples. Throws UsageError for tensors of other types or
// shapes, or without samples.
std::unique_ptr<Dataset> tensor_dataset(TensorSamples samples);

}  // namespace elinvar
