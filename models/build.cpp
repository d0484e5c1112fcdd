#include "models/build.h"

#include "models/kinds.h"
#include "tensor/spelling.h"

namespace elinvar {

namespace {

// Every model there is. A new one adds its list here and its declaration to kinds.h.
std::vector<ModelKind> all_kinds() {
  std::vector<ModelKind> all;
  for (const auto& kinds : {mlp_kinds(), resnet_kinds(), vgg_kinds(), gpt_kinds(), llama_kinds(), layered_kinds()})
    all.insert(all.end(), kinds.begin(), kinds.end());
  return all;
}

}  // namespace

std::vector<std::string> model_kinds() {
  std::vector<std::string> names;
  for (const ModelKind& kind : all_kinds()) names.push_back(kind.name);
  return names;
}

std::unique_ptr<Network> build(const ModelSpec& spec, const InputInfo& input, uint64_t seed, ModelSpec* resolved) {
  ModelSpec complete;  // `resolved` may be `spec` itself
  Settings settings(spec, &complete);
  for (const ModelKind& kind : all_kinds()) {
    if (kind.name != spec.kind) continue;
    settings.require(input.classes > 0, "kind",
                     "= '{}' must predict something, but the data have no classes (or vocabulary)", settings.kind());
    auto network = kind.build(settings, input, seed);
    settings.finish();
    if (resolved) *resolved = std::move(complete);
    return network;
  }
  settings.require(!spec.kind.empty(), "kind", "is missing{}", spelling_hint("", model_kinds()));
  settings.require(false, "kind", "does not know '{}'{}", spec.kind, spelling_hint(spec.kind, model_kinds()));
  return nullptr;
}

void require_images(const Settings& settings, const InputInfo& input) {
  settings.require(input.dtype != DType::i32 && input.sample.ndim() == 3, "kind",
                   "= '{}' takes images (height, width, channels); the data's samples are {}{}", settings.kind(),
                   input.dtype == DType::i32 ? "tokens " : "", to_string(input.sample));
}

void require_tokens(const Settings& settings, const InputInfo& input) {
  settings.require(input.dtype == DType::i32 && input.sample.ndim() == 1, "kind",
                   "= '{}' takes sequences of tokens; the data's samples are {} {}", settings.kind(),
                   name_of(input.dtype), to_string(input.sample));
}

}  // namespace elinvar
