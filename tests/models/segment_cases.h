#pragma once
// Networks of every kind that are lists of segments, with a batch for each.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/build.h"
#include "nn/segments.h"
#include "nn/task.h"
#include "tests/models/hashed_inputs.h"
#include "tests/models/pair_inputs.h"

namespace elinvar {

using SettingsOf = std::map<std::string, Value>;

struct CutCase {
  const char* name;
  const char* kind;
  SettingsOf settings;
  bool tokens = false;
  size_t segments = 0;
};

inline Spec table(const std::string& kind, const SettingsOf& settings = {}, std::vector<Spec> layers = {}) {
  Spec made = elinvar::spec(kind, settings);
  if (!layers.empty()) made.lists["layer"] = std::move(layers);
  return made;
}

inline Spec layers_of_text() {
  const Spec block =
      table("residual", {},
            {table("layer_norm"), table("attention", {{"heads", int64_t{2}}}), table("dropout", {{"p", 0.2}})});
  return table("layers", {},
               {table("embedding", {{"channels", int64_t{16}}}), table("position"),
                table("repeat", {{"times", int64_t{2}}}, {block}), table("layer_norm"), table("linear")});
}

inline Spec layers_of_images() {
  const auto conv = [](int64_t stride) { return table("conv2d", {{"out", int64_t{6}}, {"stride", stride}}); };
  const Spec norm = table("batch_norm", {{"relu", true}});
  return table("layers", {},
               {conv(2), norm, conv(2), table("batch_norm"), table("relu"), table("residual", {}, {conv(1), norm}),
                table("flatten"), table("linear")});
}

inline std::vector<CutCase> cut_cases() {
  const auto n = [](int64_t number) { return Value{number}; };
  const SettingsOf gpt = {{"layers", n(3)}, {"heads", n(4)}, {"channels", n(32)}, {"dropout", 0.1}};
  SettingsOf untied = gpt, sharded = gpt;
  const SettingsOf scaled = {{"width", 0.1}, {"depth", 0.34}};
  const SettingsOf vit = {
      {"layers", n(2)}, {"channels", n(24)}, {"patch", n(8)}, {"dropout", 0.1}, {"virtual_shards", n(2)}};
  const SettingsOf swin = {{"channels", n(8)},
                           {"window", n(3)},
                           {"blocks", std::vector<int64_t>{2, 2}},
                           {"heads", std::vector<int64_t>{2, 4}},
                           {"virtual_shards", n(2)}};
  const SettingsOf t5 = {{"layers", n(2)}, {"heads", n(3)}, {"channels", n(24)}, {"virtual_shards", n(2)}};
  const SettingsOf electra = {
      {"layers", n(2)}, {"channels", n(24)}, {"embedding", n(16)}, {"generator_heads", n(2)}, {"virtual_shards", n(2)}};
  SettingsOf experts = gpt;
  experts["experts"] = n(4), experts["expert_every"] = n(2), experts["capacity_factor"] = 1.0;
  const SettingsOf llama_experts = {
      {"layers", n(2)}, {"channels", n(32)}, {"experts", n(3)}, {"expert_every", n(2)}, {"tied_head", true}};
  untied["tied_head"] = false;
  sharded["virtual_shards"] = n(3);
  return {{"gpt", "gpt", gpt, true, 5},
          {"gpt_untied", "gpt", untied, true, 5},
          {"gpt_sharded", "gpt", sharded, true, 5},
          {"gpt_experts", "gpt", experts, true, 5},
          {"llama", "llama", {{"layers", n(2)}, {"heads", n(4)}, {"channels", n(32)}, {"tied_head", true}}, true, 4},
          {"llama_experts", "llama", llama_experts, true, 4},
          {"lstm", "lstm", {{"channels", n(16)}, {"dropout", 0.2}, {"tied_head", true}}, true, 4},
          {"layers", "layers", {}, true, 7},
          {"layers_of_images", "layers", {}, false, 9},
          {"mlp", "mlp", {{"hidden", std::vector<int64_t>{9, 7}}, {"dropout", 0.3}}, false, 4},
          {"resnet20", "resnet20", {}, false, 11},
          {"vgg11", "vgg11", {}, false, 7},
          {"dlrm", "dlrm", {}, true, 3},
          {"dlrm_bags", "dlrm", {{"bags", std::string("mean")}}, true, 3},
          {"bert", "bert", {{"layers", n(2)}, {"channels", n(16)}, {"virtual_shards", n(2)}}, true, 4},
          {"electra", "electra", electra, true, 4},
          {"t5", "t5", t5, true, 7},
          {"wide_resnet", "wide_resnet", {{"depth", n(10)}, {"widen", n(1)}, {"dropout", 0.2}}, false, 5},
          {"mobilenet_v2", "mobilenet_v2", scaled, false, 14},
          {"efficientnet", "efficientnet_b0", scaled, false, 13},
          {"shufflenet", "shufflenet_v2_x0_5", {}, false, 19},
          {"vit_sharded", "vit_tiny", vit, false, 4},
          {"swin_sharded", "swin_t", swin, false, 7},
          {"yolov3", "yolov3", {{"channels", n(2)}, {"blocks", std::vector<int64_t>{1, 0, 1, 1, 1}}}, false, 8},
          {"yolov3_tiny", "yolov3_tiny", {{"channels", n(1)}}, false, 7}};
}

struct CutNetwork {
  std::unique_ptr<Network> network;
  Inputs input = Tensor();
  Tensor target;
  Task task = {};

  explicit CutNetwork(const CutCase& c) {
    InputInfo info = c.tokens ? InputInfo{.sample = {12}, .classes = 53, .dtype = DType::i32}
                              : InputInfo{.sample = {32, 32, 3}, .classes = 5};
    if (std::string(c.kind) == "t5") {
      network = build(elinvar::spec(c.kind, c.settings), pair_info(), 1);
      input = pair_inputs();
      target = next_of_pairs();
      return;
    }
    if (std::string(c.kind) == "electra") {
      take_masked_tokens(c, info);
      return;
    }
    const bool boxes = std::string(c.kind).starts_with("yolov3");
    if (boxes) info.classes = 8;
    if (std::string(c.kind) == "dlrm") info.symbols.assign(12, 53);  // columns of categories
    if (c.settings.contains("bags")) {
      info.symbols.resize(4);
      info.most_ids = {1, 4, 4, 3};
    }
    const Spec layers = c.tokens ? layers_of_text() : layers_of_images();
    network = build(std::string(c.kind) == "layers" ? layers : elinvar::spec(c.kind, c.settings), info, 1);
    input = c.tokens ? integers<int32_t>("input", {3, 12}, 53) : elinvar::images(3, 32);
    target = c.tokens && info.symbols.empty() ? integers<int64_t>("target", {3, 12}, 53)
                                              : integers<int64_t>("target", {3}, 5);
    if (boxes) target = integers<int64_t>("target", {3, c.kind == std::string("yolov3") ? 63 : 15}, 8);
  }
  SegmentedNetwork& segmented() const { return dynamic_cast<SegmentedNetwork&>(*network); }

 private:
  // Every third token is to be predicted.
  void take_masked_tokens(const CutCase& c, InputInfo info) {
    info.further = {{.sample = {12}, .dtype = DType::i32}};
    network = build(elinvar::spec(c.kind, c.settings), info, 1);
    target = integers<int64_t>("target", {3, 12}, 53);
    for (int64_t i = 0; i < target.numel(); ++i)
      if (i % 3 != 1) target.data<int64_t>()[i] = -100;
    input = Inputs(integers<int32_t>("input", {3, 12}, 53), {target.to(DType::i32)});
    task = make_task(Spec{.kind = "replaced_tokens"}, {}, {.sample = {12}, .classes = 53}).task;
  }
};

}  // namespace elinvar
