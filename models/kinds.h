#pragma once
// The kinds of networks that a configuration may name. The file of each model lists its kinds, and build.cpp joins the
// lists. Programs add kinds of their own with register_model().
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/input_info.h"
#include "nn/network.h"
#include "tensor/base/spec.h"

namespace elinvar {

inline constexpr int64_t kMostLayers = 16384;  // in a network; repeated layers count each time
inline constexpr int64_t kMostBlocks = 2048;   // in a network; a block has several layers

struct ModelKind {
  std::string name;
  // Reads its settings (the caller calls their finish()) and builds. Throws UsageError if the input does not suit it.
  std::function<std::unique_ptr<Network>(Settings&, const InputInfo&, uint64_t seed)> build;
};

// Adds a kind to those that build() (models/build.h) knows. Call it at the start of main(). Throws UsageError if the
// name is taken.
void register_model(ModelKind kind);

std::vector<ModelKind> mlp_kinds();
std::vector<ModelKind> resnet_kinds();
std::vector<ModelKind> wide_resnet_kinds();
std::vector<ModelKind> vgg_kinds();
std::vector<ModelKind> inverted_residual_kinds();
std::vector<ModelKind> shufflenet_kinds();
std::vector<ModelKind> vit_kinds();
std::vector<ModelKind> swin_kinds();
std::vector<ModelKind> gpt_kinds();
std::vector<ModelKind> llama_kinds();
std::vector<ModelKind> lstm_kinds();
std::vector<ModelKind> layered_kinds();
std::vector<ModelKind> recommendation_kinds();
std::vector<ModelKind> bert_kinds();
std::vector<ModelKind> electra_kinds();
std::vector<ModelKind> unet_kinds();
std::vector<ModelKind> t5_kinds();
std::vector<ModelKind> yolov3_kinds();

// Returns f(). A ParameterError (nn/parameters.h) becomes a UsageError that begins with the place of the kind.
template <class F>
auto with_place_of(const Settings& settings, F f) {
  try {
    return f();
  } catch (const ParameterError& error) {
    settings.refuse("kind", fmt::format("= '{}': {}", settings.kind(), error.what()));
  }
}

// Reads the setting `virtual_shards` (NUMERICS.md, rules 24 to 27), by default 1. It must not exceed the number of any
// of these things that are cut, given with their names. Records of older runs lack the setting, so a network has it
// only if its configuration does.
int virtual_shards(Settings& settings, const std::vector<std::pair<std::string, int64_t>>& things);

// Whether images have a side under 64 pixels, for which the defaults of networks differ.
bool is_small(const InputInfo& input);
// Reads the setting `stem`, "imagenet" or "cifar", which is the default if `otherwise`; returns whether it is "cifar".
bool cifar_stem(Settings& settings, bool otherwise);

// Check that the data are images (H, W, C), or sequences of tokens (T).
void require_images(const Settings& settings, const InputInfo& input);
void require_tokens(const Settings& settings, const InputInfo& input);

}  // namespace elinvar
