#pragma once
// The kinds of networks that a configuration may name. Each model's file lists its own; build.cpp joins the lists. A
// program adds its own kinds with register_model().
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/input_info.h"
#include "nn/network.h"
#include "tensor/base/spec.h"

namespace elinvar {

inline constexpr int64_t kMostLayers = 16384;  // of a network; repeated layers count each time
inline constexpr int64_t kMostBlocks = 2048;   // of several layers each

struct ModelKind {
  std::string name;
  // Reads its settings (the caller finishes them) and builds; throws UsageError if the input does not suit it.
  std::function<std::unique_ptr<Network>(Settings&, const InputInfo&, uint64_t seed)> build;
};

// Adds a kind to those that build() (models/build.h) knows; call it at the start of main(). UsageError if the name is
// taken.
void register_model(ModelKind kind);

std::vector<ModelKind> mlp_kinds();
std::vector<ModelKind> resnet_kinds();
std::vector<ModelKind> vgg_kinds();
std::vector<ModelKind> gpt_kinds();
std::vector<ModelKind> llama_kinds();
std::vector<ModelKind> layered_kinds();

// f(). A ParameterError (nn/parameters.h) becomes a UsageError that says first where the kind stands.
template <class F>
auto with_place_of(const Settings& settings, F f) {
  try {
    return f();
  } catch (const ParameterError& error) {
    settings.refuse("kind", fmt::format("= '{}': {}", settings.kind(), error.what()));
  }
}

// What models check of the data first: images (H, W, C), or sequences of tokens (T).
void require_images(const Settings& settings, const InputInfo& input);
void require_tokens(const Settings& settings, const InputInfo& input);

}  // namespace elinvar
