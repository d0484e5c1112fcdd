#include "tools/bench/model_cases.h"

#include <fmt/ranges.h>

#include <functional>

#include "tensor/base/check.h"

namespace elinvar::bench {
namespace {

ModelCase image_case(const std::string& name, Spec spec, int64_t side, int64_t classes, int64_t batch,
                     double forward_gflop) {
  return {.name = name,
          .spec = std::move(spec),
          .sample = {side, side, 3},
          .classes = classes,
          .batch = batch,
          .forward_gflop = forward_gflop};
}

ModelCase box_case(const std::string& name, Spec spec, Spec task, int64_t batch, double forward_gflop) {
  ModelCase made = image_case(name, std::move(spec), 416, 80, batch, forward_gflop);
  made.data = CaseData::boxes;
  made.task = std::move(task);
  return made;
}

ModelCase mask_case(const std::string& name, Spec spec, int64_t side, int64_t classes, int64_t batch,
                    double forward_gflop) {
  ModelCase made = image_case(name, std::move(spec), side, classes, batch, forward_gflop);
  made.data = CaseData::masks;
  made.task = spec_of("segmentation");
  return made;
}

// Sequences of 128 tokens. `products`: multiply-adds for a token.
ModelCase text_case(const std::string& name, Spec spec, CaseData data, int64_t symbols, int64_t batch,
                    int64_t products) {
  constexpr int64_t kLength = 128;
  return {.name = name,
          .spec = std::move(spec),
          .sample = {kLength},
          .classes = symbols,
          .batch = batch,
          .forward_gflop = 2e-9 * static_cast<double>(products * kLength),
          .data = data};
}

// The same with a mixture of eight experts in each block, of which a token meets two.
ModelCase mixture_case(ModelCase gpt) {
  gpt.name += "experts";
  gpt.spec.settings["experts"] = {int64_t{8}};
  gpt.experts_per_token = 2;
  return gpt;
}

// A language model of layers as wide as its embeddings.
ModelCase lstm_case(const std::string& name, int64_t layers, int64_t width, int64_t batch) {
  constexpr int64_t kSymbols = 256;
  return text_case(name, spec_of("lstm", {{"layers", {layers}}, {"channels", {width}}}), CaseData::text, kSymbols,
                   batch, layers * 8 * width * width + width * kSymbols);
}

// Multiply-adds of a token in a block of a transformer that sees `length` tokens.
int64_t block_products(int64_t width, int64_t length = 128) { return 12 * width * width + 2 * length * width; }

// ELECTRA's small networks.
ModelCase electra_case(const std::string& name, int64_t batch) {
  constexpr int64_t kSymbols = 30522, kLayers = 12, kWidth = 256, kGenerator = 64, kEmbedding = 128;
  const int64_t products = kLayers * (block_products(kWidth) + block_products(kGenerator)) +
                           2 * kEmbedding * (kWidth + kGenerator) + kEmbedding * kSymbols + kWidth * kWidth;
  ModelCase made = text_case(name, spec_of("electra-small"), CaseData::replaced_text, kSymbols, batch, products);
  made.task = spec_of("replaced_tokens");
  return made;
}

ModelCase bert_case(const std::string& name, const std::string& head, int64_t batch) {
  constexpr int64_t kSymbols = 30522, kLayers = 12, kWidth = 768;
  const bool tokens = head == "tokens";
  return text_case(name, spec_of("bert-base", {{"head", {head}}}),
                   tokens ? CaseData::masked_text : CaseData::labelled_text, kSymbols, batch,
                   kLayers * block_products(kWidth) + (tokens ? kWidth * (kWidth + kSymbols) : 0));
}

// Sources and targets of 128 tokens each; the rate counts those of the source.
ModelCase t5_case(const std::string& name, int64_t batch) {
  constexpr int64_t kSymbols = 32128, kLayers = 6, kWidth = 512;
  const int64_t cross = 4 * kWidth * kWidth + 2 * 128 * kWidth;
  return text_case(name, spec_of("t5-small"), CaseData::text_pairs, kSymbols, batch,
                   kLayers * (2 * block_products(kWidth) + cross) + kWidth * kSymbols);
}

// Multiply-adds of a perceptron, as GFLOP.
double tower_gflop(const std::vector<int64_t>& widths) {
  double products = 0;
  for (size_t i = 0; i + 1 < widths.size(); ++i) products += static_cast<double>(widths[i] * widths[i + 1]);
  return 2e-9 * products;
}

constexpr int64_t kNumbers = 13, kColumns = 26;  // of a row of clicks, as Criteo publishes them

ModelCase click_case(const std::string& name, Spec spec, double forward_gflop) {
  return {.name = name,
          .spec = std::move(spec),
          .sample = {kNumbers},
          .classes = 1,
          .batch = 2048,
          .forward_gflop = forward_gflop,
          .data = CaseData::table,
          .symbols = std::vector<int64_t>(kColumns, 1000),
          .task = spec_of("binary")};
}

// The perceptrons of DLRM's paper for these rows.
ModelCase dlrm_case() {
  constexpr int64_t kChannels = 16, kPairs = (1 + kColumns) * kColumns / 2;
  const std::vector<int64_t> bottom{512, 256, 64}, top{512, 256};
  const double gflop =
      tower_gflop({kNumbers, 512, 256, 64, kChannels}) + tower_gflop({kChannels + kPairs, 512, 256, 1});
  return click_case("dlrm", spec_of("dlrm", {{"bottom", {bottom}}, {"top", {top}}}), gflop);
}

ModelCase deepfm_case() {
  const std::vector<int64_t> deep{400, 400, 400};
  return click_case("deepfm", spec_of("deepfm", {{"deep", {deep}}}),
                    tower_gflop({(kNumbers + kColumns) * 10, 400, 400, 400, 1}));
}

// MovieLens' 1 million ratings: users, films, and four films that a user did not rate for one that she did.
ModelCase neumf_case() {
  constexpr int64_t kCandidates = 5;
  const std::vector<int64_t> layers{64, 32, 16};
  return {.name = "neumf",
          .spec = spec_of("neumf", {{"factors", {int64_t{16}}}, {"layers", {layers}}}),
          .sample = {kCandidates, 2},
          .classes = 1,
          .batch = 256,
          .forward_gflop = kCandidates * tower_gflop({64, 64, 32, 16, 2}),
          .data = CaseData::ratings,
          .symbols = {6040, 3706},
          .task = spec_of("ranking")};
}

const std::vector<ModelCase>& model_cases() {
  static const std::vector<ModelCase> all{
      image_case("resnet20", spec_of("resnet20"), 32, 10, 128, 2 * 0.0408),
      image_case("resnet18cifar", spec_of("resnet18", {{"stem", {std::string("cifar")}}}), 32, 10, 128, 2 * 0.5557),
      image_case("wideresnet28", spec_of("wide_resnet"), 32, 10, 16, 2 * 5.2432),
      image_case("resnet50", spec_of("resnet50"), 224, 1000, 16, 2 * 4.089),
      image_case("wideresnet50", spec_of("wide_resnet50_2"), 224, 1000, 8, 2 * 11.398),
      image_case("vgg19cifar", spec_of("vgg19"), 32, 10, 128, 2 * 0.3981),
      image_case("mobilenetv2", spec_of("mobilenet_v2"), 224, 1000, 16, 2 * 0.3008),
      image_case("efficientnetb0", spec_of("efficientnet_b0"), 224, 1000, 16, 2 * 0.3858),
      image_case("shufflenetv2", spec_of("shufflenet_v2_x1_0"), 224, 1000, 16, 2 * 0.1446),
      image_case("vittiny", spec_of("vit_tiny"), 224, 1000, 16, 2 * 1.258),
      image_case("vitb16", spec_of("vit_b_16"), 224, 1000, 8, 2 * 17.56),
      image_case("swint", spec_of("swin_t"), 224, 1000, 16, 2 * 4.491),
      box_case("yolov3", spec_of("yolov3"), spec_of("detection"), 4, 2 * 32.8),
      box_case("yolov3tiny", spec_of("yolov3_tiny"),
               spec_of("detection",
                       {{"anchors", {std::vector<double>{10, 14, 23, 27, 37, 58, 81, 82, 135, 169, 344, 319}}}}),
               8, 2 * 2.78),
      mask_case("unet", spec_of("unet"), 128, 5, 8, 2 * 2.3069),
      gpt_case("chargpt", 6, 6, 384, 256, 256, 16),
      mixture_case(gpt_case("chargpt", 6, 6, 384, 256, 256, 16)),
      gpt_case("gpt2", 12, 12, 768, 256, 50257, 4),
      lstm_case("lstm", 2, 512, 32),
      bert_case("bert", "tokens", 8),
      bert_case("bertpooled", "pooled", 8),
      electra_case("electra", 8),
      t5_case("t5", 8),
      dlrm_case(),
      deepfm_case(),
      neumf_case()};
  return all;
}

std::vector<std::string> names_of(const std::function<bool(const ModelCase&)>& chosen) {
  std::vector<std::string> names;
  for (const ModelCase& c : model_cases())
    if (chosen(c)) names.push_back(c.name);
  return names;
}

}  // namespace

Spec spec_of(const std::string& kind, std::map<std::string, Setting> settings) {
  return {.kind = kind, .settings = std::move(settings)};
}

ModelCase gpt_case(const std::string& name, int64_t layers, int64_t heads, int64_t channels, int64_t length,
                   int64_t classes, int64_t batch) {
  return {.name = name,
          .spec = spec_of("gpt", {{"layers", {layers}}, {"heads", {heads}}, {"channels", {channels}}}),
          .sample = {length},
          .classes = classes,
          .batch = batch,
          .layers = layers,
          .channels = channels,
          .data = CaseData::text};
}

std::vector<std::string> model_names() {
  return names_of([](const ModelCase&) { return true; });
}
std::vector<std::string> shardable_model_names() {
  return names_of([](const ModelCase& c) { return c.is_transformer(); });
}
std::vector<std::string> job_model_names() {
  return names_of([](const ModelCase& c) { return c.data == CaseData::images || c.data == CaseData::text; });
}

const ModelCase& model_case(const std::string& name) {
  for (const ModelCase& c : model_cases())
    if (name == c.name) return c;
  throw UsageError(fmt::format("bench: unknown network '{}'; there are {}", name, fmt::join(model_names(), ", ")));
}

}  // namespace elinvar::bench
