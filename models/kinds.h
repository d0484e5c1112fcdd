#pragma once
// The kinds of networks that a configuration may name. Each model's file lists its own; build.cpp joins the lists.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/settings.h"
#include "nn/network.h"

namespace elinvar {

inline constexpr int64_t kMostBlocks = 2048;  // of several layers each

struct ModelKind {
  std::string name;
  // Reads its settings (the caller finishes them) and builds; throws UsageError if the input does not suit it.
  std::function<std::unique_ptr<Network>(Settings&, const InputInfo&, uint64_t seed)> build;
};

std::vector<ModelKind> mlp_kinds();
std::vector<ModelKind> resnet_kinds();
std::vector<ModelKind> vgg_kinds();
std::vector<ModelKind> gpt_kinds();
std::vector<ModelKind> llama_kinds();
std::vector<ModelKind> layered_kinds();

// What models check of the data first: images (H, W, C), or sequences of tokens (T).
void require_images(const Settings& settings, const InputInfo& input);
void require_tokens(const Settings& settings, const InputInfo& input);

}  // namespace elinvar
