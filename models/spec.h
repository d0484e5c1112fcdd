#pragma once
// What a configuration says about a network, before anything is built: kinds and settings, as written, with the
// places they stand at so that errors can name them. tools/ makes one from the [model] table of a.toml:
//
//   [model]                         ModelSpec{kind = "layers", lists = {{"layer", {
//   [[model.layer]]                   ModelSpec{kind = "conv2d", settings = {{"out", {16, "a.toml:4"}}}},
//   kind = "conv2d"                   ModelSpec{kind = "residual", lists = {{"layer", {...}}}}}}}}
//   out = 16
//   [[model.layer]]
//   kind = "residual"
//   layer = [{kind = "conv2d", out = 16}, {kind = "batch_norm"}]
//
// Every key but `kind` whose value is an array of tables is a list; every other key is a setting. A [model] table
// without `kind` but with a list "layer" has kind "layers".
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace elinvar {

using Value = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;

struct Setting {
  Value value;
  std::string place = {};  // empty: not from a configuration
};

struct ModelSpec {
  std::string kind;
  std::map<std::string, Setting> settings = {};
  std::map<std::string, std::vector<ModelSpec>> lists = {};
  std::string place = {};  // of the kind, or of the whole table if it has none
};

// The most layers of a network; repeated layers count each time.
inline constexpr int64_t kMostLayers = 16384;

// What the data decide about a network.
struct InputInfo {
  Shape sample;              // of one sample: images (H, W, C), features (F), tokens (T)
  int64_t classes = 0;       // of a classifier; the vocabulary of a language model
  DType dtype = DType::f32;  // i32: the sample is a sequence of tokens
};

}  // namespace elinvar
