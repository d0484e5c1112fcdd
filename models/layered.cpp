// Networks declared layer by layer: the kind "layers".
#include <algorithm>
#include <set>

#include "models/kinds.h"
#include "models/layer.h"
#include "nn/segments.h"
#include "tensor/base/spelling.h"

namespace elinvar {

namespace {

constexpr double kMostNumbers = 0x1p32;  // per sample, between two layers

bool is_name(const std::string& text) {
  return !text.empty() && std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

// All kinds of layers. A new family adds its list here and its declaration to layer.h.
const std::vector<LayerKind>& all_layers() {
  static const std::vector<LayerKind> kAll = [] {
    std::vector<LayerKind> all;
    for (const auto& kinds : {pointwise_layers(), linear_layers(), image_layers(), norm_layers(), branch_layers()})
      all.insert(all.end(), kinds.begin(), kinds.end());
    return all;
  }();
  return kAll;
}

Layer build_layer(Settings& s, const Scope& scope, Flow& flow) {
  std::vector<std::string> names;
  for (const LayerKind& kind : all_layers()) {
    if (kind.name == s.kind()) return kind.build(s, scope, flow);
    names.push_back(kind.name);
  }
  names.push_back("repeat");
  s.require(!s.kind().empty(), "kind", "is missing{}", spelling_hint("", names));
  s.require(false, "kind", "does not know '{}'{}", s.kind(), spelling_hint(s.kind(), names));
  return {};
}

// Counts the layers that a list makes, nested and repeated ones included, without building them. Refuses the layer that
// exceeds the limit.
int64_t count_layers(const std::vector<Spec>& list) {
  int64_t count = 0;
  for (const Spec& layer : list) {
    int64_t within = 1;
    for (const auto& [name, inner] : layer.lists) within += count_layers(inner);
    const auto times = layer.settings.find("times");
    const auto* repeats = times == layer.settings.end() ? nullptr : std::get_if<int64_t>(&times->second.value);
    if (repeats && *repeats > 0 && layer.kind == "repeat") {
      check(*repeats <= kMostLayers / within,
            "{}{}model.layer.times = {} of {} layers are too many: a network has at most {}", times->second.place,
            times->second.place.empty() ? "" : ": ", *repeats, within, kMostLayers);
      within *= *repeats;
    }
    count += within;
    check(count <= kMostLayers, "{}{}model.layer has more than {} layers, repeats counted each time", layer.place,
          layer.place.empty() ? "" : ": ", kMostLayers);
  }
  return count;
}

class LayeredNetwork : public SegmentedNetwork {
 public:
  LayeredNetwork(Settings& s, const InputInfo& input, uint64_t seed) {
    Flow flow{input.sample, input.dtype == DType::i32, input.classes, virtual_shards(s, {})};
    Shape expected = flow.tokens ? flow.shape : Shape{};
    expected.push_back(input.classes);
    s.require(s.has_list("layer"), "layer", "is missing: 'layers' needs a list of [[model.layer]]");
    (void)count_layers(s.spec().lists.at("layer"));
    const auto add = [this](const std::string& name, Layer layer, const std::string& kind) {
      add_segment(
          name, [run = std::move(layer)](const Residual& x, Context& c) { return run(x, c); }, {}, kind);
    };
    build_layers(s, "layer", Scope(parameters, seed), flow, add);
    add_head();
    s.require(!flow.tokens && flow.shape == expected, "layer",
              "ends with {} a sample where {} is expected; put a \"linear\" last{}", to_string(flow.shape),
              to_string(expected), flow.shape.ndim() == 3 ? ", after a \"global_avg_pool\" or \"flatten\"" : "");
  }

  ShardedLogits head(Residual x, Context&) const override { return {.parts = {x}}; }
};

}  // namespace

void build_layers(Settings& settings, const std::string& name, const Scope& scope, Flow& flow, const Built& built) {
  std::set<std::string> names;
  for (Settings& s : settings.list(name)) {
    const std::string called = s.text("name", std::to_string(names.size()));
    s.require(is_name(called), "name", "must be a name without control characters, and not empty");
    s.require(names.insert(called).second, "name", "= '{}' is what a layer before it is called", called);
    with_place_of(s, [&] {
      if (s.kind() != "repeat") return built(called, build_layer(s, scope / called, flow), "");
      repeat_layers(s, scope / called, flow, [&](const std::string& i, Layer layer, const std::string&) {
        built(called + "." + i, std::move(layer), called);
      });
    });
    s.finish();
    double numbers = 1;
    for (const int64_t extent : flow.shape) numbers *= static_cast<double>(extent);
    s.require(numbers <= kMostNumbers, "kind", "= '{}' gives {} a sample, which is more than {:g} numbers", s.kind(),
              to_string(flow.shape), kMostNumbers);
  }
}

Layer sequence(Settings& settings, const std::string& name, const Scope& scope, Flow& flow) {
  std::vector<Layer> layers;
  build_layers(settings, name, scope, flow,
               [&](const std::string&, Layer layer, const std::string&) { layers.push_back(std::move(layer)); });
  return [layers](const Var& x, Context& context) {
    Var y = x;
    for (const Layer& layer : layers) y = layer(y, context);
    return y;
  };
}

void require_things(const Settings& settings, const Flow& flow, const char* name, int64_t things) {
  settings.require(things >= flow.shards, name, "= {} is less than model.virtual_shards = {}", things, flow.shards);
}

void require_flow(const Settings& settings, const Flow& flow, int ndim, const char* what) {
  settings.require(!flow.tokens, "kind", "= '{}' takes {}, but gets tokens; put an \"embedding\" first",
                   settings.kind(), what);
  settings.require(ndim == 0 ? flow.shape.ndim() > 0 : flow.shape.ndim() == ndim, "kind",
                   "= '{}' takes {}, but gets {}", settings.kind(), what, to_string(flow.shape));
}

std::vector<ModelKind> layered_kinds() {
  return {{"layers", [](Settings& s, const InputInfo& input, uint64_t seed) -> std::unique_ptr<Network> {
             return std::make_unique<LayeredNetwork>(s, input, seed);
           }}};
}

}  // namespace elinvar
