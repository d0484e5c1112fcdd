#include "data/text.h"

#include <algorithm>
#include <filesystem>

#include "data/files.h"
#include "tensor/check.h"
#include "tensor/file.h"
#include "tensor/philox.h"
#include "tensor/setting.h"

namespace elinvar {
namespace {

class TextDataset final : public Dataset {
 public:
  TextDataset(const DataConfig& config, const std::string& text, Split split, const std::string& where)
      : context_(config.context) {
    check_setting(config.tokens == "byte" || config.tokens == "character", "data.tokens",
                  "must be \"byte\" or \"character\", got \"{}\"", config.tokens);
    check_setting(context_ >= 1 && context_ <= 1 << 20, "data.context", "must be from 1 to 2^20 tokens, got {}",
                  context_);
    check(split != Split::test, "[text] a text has no test split; its last part is split \"validation\"");
    if (text.empty()) fail("[text] '{}' is empty", where);
    if (config.tokens == "character") vocabulary_ = Vocabulary::characters(text);
    tokens_ = vocabulary_.encode(text);

    const double held = config.validation_fraction == 0 ? 0.1 : config.validation_fraction;
    const auto total = static_cast<int64_t>(tokens_.size());
    const auto border = static_cast<int64_t>(static_cast<double>(total) * (1.0 - held));
    if (split == Split::train) tokens_.resize(static_cast<size_t>(border));
    else tokens_.erase(tokens_.begin(), tokens_.begin() + border);
    tokens_.shrink_to_fit();

    const auto n = static_cast<int64_t>(tokens_.size());
    check_setting(n > context_, "data.context", "= {} must be less than the {} tokens of the {} split of '{}'",
                  context_, n, name_of(split), where);
    size_ = split == Split::train ? std::max<int64_t>(1, (n - context_) / context_) : (n - 1) / context_;
    offsets_ = std::min(context_, n - size_ * context_);
  }

  int64_t size() const override { return size_; }
  Shape input_shape() const override { return {context_}; }
  DType input_dtype() const override { return DType::i32; }
  Shape target_shape() const override { return {context_}; }
  int64_t classes() const override { return vocabulary_.size(); }
  const Vocabulary* vocabulary() const override { return &vocabulary_; }

  void read(int64_t index, const Draw& draw, void* input, int64_t* target) const override {
    int64_t offset = 0;
    if (draw.augment) {
      const Random4 words = philox(draw.seed ^ key_of("data.text"), static_cast<uint32_t>(draw.epoch), 0, 0, 0);
      offset = static_cast<int64_t>((uint64_t{words.v[0]} * static_cast<uint64_t>(offsets_)) >> 32);
    }
    const int32_t* window = tokens_.data() + offset + index * context_;
    std::copy_n(window, context_, static_cast<int32_t*>(input));
    std::copy_n(window + 1, context_, target);
  }

  void describe(Hasher& hasher) const override {
    for (int64_t v : {context_, size_, offsets_, vocabulary_.size()}) hasher.add_integer(v);
    hasher.add(vocabulary_.symbols());
    hasher.add(tokens_.data(), tokens_.size() * sizeof(int32_t));
  }

 private:
  int64_t context_, size_ = 0, offsets_ = 1;
  Vocabulary vocabulary_;
  std::vector<int32_t> tokens_;
};

std::string read_texts(const DataConfig& config) {
  std::error_code error;
  if (std::filesystem::is_regular_file(config.path, error)) return read_file(config.path);
  const auto files = open_files(config.path, config.exclude);
  std::string text;
  for (size_t i = 0; i < files->entries().size(); ++i)
    if (config.include.empty() || matches_any(files->entries()[i].path, config.include)) text += files->read(i);
  if (text.empty())
    fail("[text] no text in '{}': {} files, none that `include` names has any", config.path, files->entries().size());
  return text;
}

}  // namespace

std::unique_ptr<Dataset> open_text(const DataConfig& config, Split split) {
  return std::make_unique<TextDataset>(config, read_texts(config), split, config.path);
}

std::unique_ptr<Dataset> open_synthetic_text(const DataConfig& config, Split split) {
  check_setting(config.size >= 1, "data.size", "must be at least 1, got {}", config.size);
  std::string text;
  for (int64_t i = 0; i < config.size; ++i) {
    const Random4 words = philox(static_cast<uint64_t>(config.data_seed) ^ key_of("data.synthetic_text"),
                                 static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0);
    const uint32_t a = words.v[0] % 100, b = words.v[1] % 100;
    text += fmt::format("{}+{}={}\n", a, b, a + b);
  }
  return std::make_unique<TextDataset>(config, text, split, "synthetic_text");
}

}  // namespace elinvar
