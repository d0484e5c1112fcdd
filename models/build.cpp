#include "models/build.h"

#include <algorithm>

#include "models/kinds.h"
#include "tensor/base/registry.h"
#include "tensor/base/spelling.h"
#include "tensor/heap.h"
#include "tensor/numerics.h"

namespace elinvar {

namespace {

// All kinds of models. A new one adds its list here and its declaration to kinds.h.
Registry<ModelKind>& registry() {
  static Registry<ModelKind> all = [] {
    std::vector<ModelKind> built_in;
    for (const auto& kinds :
         {mlp_kinds(), resnet_kinds(), wide_resnet_kinds(), vgg_kinds(), inverted_residual_kinds(), shufflenet_kinds(),
          vit_kinds(), swin_kinds(), unet_kinds(), yolov3_kinds(), gpt_kinds(), llama_kinds(), lstm_kinds(),
          bert_kinds(), electra_kinds(), t5_kinds(), recommendation_kinds(), layered_kinds()})
      built_in.insert(built_in.end(), kinds.begin(), kinds.end());
    return Registry<ModelKind>(std::move(built_in));
  }();
  return all;
}

std::unique_ptr<Network> build_once(const Spec& spec, const InputInfo& input, uint64_t seed, Spec* resolved) {
  Spec complete;  // `resolved` may be `spec` itself
  Settings settings(spec, "model", &complete);
  const ModelKind* kind = registry().find(spec.kind);
  settings.require(kind != nullptr || !spec.kind.empty(), "kind", "is missing{}", spelling_hint("", model_kinds()));
  settings.require(kind != nullptr, "kind", "does not know '{}'{}", spec.kind, spelling_hint(spec.kind, model_kinds()));
  settings.require(input.classes > 0, "kind",
                   "= '{}' must predict something, but the data have no classes (or vocabulary)", settings.kind());
  auto network = with_place_of(settings, [&] { return kind->build(settings, input, seed); });
  settings.finish();
  check(network != nullptr, "[model] kind '{}' built no network", spec.kind);
  if (resolved) *resolved = std::move(complete);
  return network;
}

// Refuses a network whose parameters do not fit into memory.
void check_size(const Spec& spec, const Parameters& parameters) {
  const double memory = static_cast<double>(machine_memory());
  double elements = 0;
  const Parameter* largest = nullptr;
  for (const Parameter& p : parameters.list) {
    elements += static_cast<double>(p.var.value().numel());
    if (!largest || p.var.value().numel() > largest->var.value().numel()) largest = &p;
  }
  Settings(spec, "model")
      .require(elements * sizeof(float) <= memory, "kind",
               "= '{}' has {:.4g} parameters, {:.4g} GiB, more than the {:.4g} GiB of this machine's memory; the "
               "largest is '{}' of shape {}",
               spec.kind, elements, elements * sizeof(float) * 0x1p-30, memory * 0x1p-30, largest ? largest->name : "",
               largest ? to_string(largest->var.shape()) : "");
}

}  // namespace

void register_model(ModelKind kind) { registry().add(std::move(kind), "model"); }

std::vector<std::string> model_kinds() { return registry().names(); }

std::unique_ptr<Network> build(const Spec& spec, const InputInfo& input, uint64_t seed, Spec* resolved) {
  const bool values = !OutlineScope::active();
  {
    const OutlineScope no_values;  // shows errors before values take time and memory
    const std::unique_ptr<Network> outline = build_once(spec, input, seed, nullptr);
    if (values) check_size(spec, outline->parameters);
  }
  return build_once(spec, input, seed, resolved);
}

int virtual_shards(Settings& settings, const std::vector<std::pair<std::string, int64_t>>& things) {
  if (!settings.has("virtual_shards")) return 1;
  const int64_t shards = settings.integer("virtual_shards", 1, 1, kMostShards);
  for (const auto& [name, count] : things)
    settings.require(shards <= count, "virtual_shards", "= {} is more than {} = {}", shards, name, count);
  return static_cast<int>(shards);
}

bool is_small(const InputInfo& input) { return std::min(input.sample[0], input.sample[1]) < 64; }

bool cifar_stem(Settings& settings, bool otherwise) {
  return settings.choice("stem", otherwise ? "cifar" : "imagenet", {"imagenet", "cifar"}) == "cifar";
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
