#include "data/text.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>

#include "data/bpe.h"
#include "data/files.h"
#include "data/masked_tokens.h"
#include "data/token_file.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

// A sequence of tokens in memory or in files.
class TokenRow {
 public:
  virtual ~TokenRow() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t offset, int64_t count, int32_t* tokens) const = 0;  // thread-safe
  virtual void describe(Hasher& hasher) const = 0;
};

using Tokens = std::shared_ptr<const std::vector<int32_t>>;

// The tokens [begin, end) of a sequence.
class TokensInMemory final : public TokenRow {
 public:
  TokensInMemory(Tokens tokens, int64_t begin, int64_t end) : tokens_(std::move(tokens)), begin_(begin), end_(end) {}
  int64_t size() const override { return end_ - begin_; }
  void read(int64_t offset, int64_t count, int32_t* tokens) const override {
    std::copy_n(tokens_->data() + begin_ + offset, count, tokens);
  }
  void describe(Hasher& hasher) const override {
    hasher.add(tokens_->data() + begin_, static_cast<size_t>(size()) * sizeof(int32_t));
  }

 private:
  Tokens tokens_;
  int64_t begin_, end_;
};

// The tokens [begin, end) of several files, one after another.
class TokensInFiles final : public TokenRow {
 public:
  TokensInFiles(std::shared_ptr<const std::vector<TokenFile>> files, int64_t begin, int64_t end)
      : files_(std::move(files)), begin_(begin), end_(end) {}
  int64_t size() const override { return end_ - begin_; }
  void read(int64_t offset, int64_t count, int32_t* tokens) const override {
    int64_t at = begin_ + offset;
    for (const TokenFile& file : *files_) {
      const int64_t here = at < file.size() ? std::min(count, file.size() - at) : 0;
      if (here > 0) file.read(at, here, tokens);
      tokens += here;
      count -= here;
      at += here - file.size();
      if (count == 0) break;
      at = std::max<int64_t>(at, 0);
    }
  }
  // Hashes the part, each file's size, and a sample of its contents: its first and last tokens, and some between.
  void describe(Hasher& hasher) const override {
    for (const int64_t v : {begin_, end_, static_cast<int64_t>(files_->size())}) hasher.add_integer(v);
    const int64_t samples = std::max<int64_t>(2, kSamples / static_cast<int64_t>(files_->size()));
    std::vector<int32_t> tokens(kSampleTokens);
    for (const TokenFile& file : *files_) {
      hasher.add_integer(file.size());
      const int64_t count = std::min(kSampleTokens, file.size());
      for (int64_t i = 0; i < samples; ++i) {
        file.read((file.size() - count) * i / (samples - 1), count, tokens.data());
        hasher.add(tokens.data(), static_cast<size_t>(count) * sizeof(int32_t));
      }
    }
  }

 private:
  static constexpr int64_t kSamples = 256, kSampleTokens = 1024;
  std::shared_ptr<const std::vector<TokenFile>> files_;
  int64_t begin_, end_;
};

class TextDataset final : public Dataset {
 public:
  TextDataset(const DataConfig& config, std::unique_ptr<TokenRow> tokens, std::unique_ptr<Vocabulary> vocabulary,
              Split split, const std::string& where)
      : context_(config.context), where_(where), vocabulary_(std::move(vocabulary)), tokens_(std::move(tokens)) {
    const int64_t n = tokens_->size();
    check_setting(n > context_, "data.context", "= {} must be less than the {} tokens of the {} split of '{}'",
                  context_, n, name_of(split), where);
    size_ = split == Split::train ? std::max<int64_t>(1, (n - context_) / context_) : (n - 1) / context_;
    offsets_ = std::min(context_, n - size_ * context_);
  }

  int64_t size() const override { return size_; }
  SampleFormat format() const override {
    return {.inputs = {{Shape{context_}, DType::i32}}, .target = {Shape{context_}, DType::i64}};
  }
  int64_t classes() const override { return vocabulary_->size(); }
  const Vocabulary* vocabulary() const override { return vocabulary_.get(); }

  void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const override {
    int64_t offset = 0;
    if (draw.augment) {
      const Random4 words = philox(draw.seed ^ key_of("data.text"), static_cast<uint32_t>(draw.epoch), 0, 0, 0);
      offset = random_below(words.v[0], offsets_);
    }
    std::vector<int32_t> window(static_cast<size_t>(context_) + 1);
    tokens_->read(offset + index * context_, context_ + 1, window.data());
    for (const int32_t token : window)
      if (token < 0 || token >= vocabulary_->size())
        fail(
            "[tokens] sample {} of '{}': token {} is outside the vocabulary of {}; data.tokenizer must be the one that "
            "made the tokens",
            index, where_, token, vocabulary_->size());
    std::copy_n(window.data(), context_, sample.input<int32_t>());
    std::copy_n(window.data() + 1, context_, sample.target<int64_t>());
  }

  void describe(Hasher& hasher) const override {
    for (int64_t v : {context_, size_, offsets_}) hasher.add_integer(v);
    vocabulary_->describe(hasher);
    tokens_->describe(hasher);
  }

 private:
  int64_t context_, size_ = 0, offsets_ = 1;
  std::string where_;
  std::unique_ptr<Vocabulary> vocabulary_;
  std::unique_ptr<TokenRow> tokens_;
};

// Returns the samples, masked if the configuration says so.
std::unique_ptr<Dataset> perhaps_masked(const DataConfig& config, std::unique_ptr<Dataset> text) {
  return config.masking > 0 ? masked_tokens(std::move(text), config.masking, config.targets_as_input) : std::move(text);
}

void check_context(const DataConfig& config) {
  check_setting(config.masking >= 0 && config.masking <= 0.9, "data.masking", "must be from 0 to 0.9, got {}",
                config.masking);
  check_setting(!config.targets_as_input || config.masking > 0, "data.targets_as_input",
                "= true needs data.masking above 0");
  check_setting(config.context >= 1 && config.context <= 1 << 20, "data.context",
                "must be from 1 to 2^20 tokens, got {}", config.context);
}

// Returns the index at which the validation part, the end of the text, begins.
int64_t border(const DataConfig& config, int64_t tokens) {
  const double held = config.validation_fraction == 0 ? 0.1 : config.validation_fraction;
  return static_cast<int64_t>(static_cast<double>(tokens) * (1.0 - held));
}

std::unique_ptr<Vocabulary> make_vocabulary(const DataConfig& config, const std::string& text) {
  check_setting(config.tokens == "byte" || config.tokens == "character" || config.tokens == "bpe", "data.tokens",
                "must be \"byte\", \"character\" or \"bpe\", got \"{}\"", config.tokens);
  check_setting(!config.special_tokens || config.tokens == "bpe", "data.special_tokens",
                "has a meaning only with data.tokens = \"bpe\"");
  if (config.tokens == "byte") return std::make_unique<ByteVocabulary>();
  if (config.tokens == "character") return std::make_unique<CharacterVocabulary>(text);
  check_setting(!config.tokenizer.empty(), "data.tokenizer", "must name a tokenizer.json for tokens = \"bpe\"");
  return Bpe::load(config.tokenizer);
}

// Returns the tokens of a text. Its splits share one sequence, which lives as long as any of them, so that it is
// computed once.
Tokens tokens_of(const Vocabulary& vocabulary, const std::string& text, bool special_tokens) {
  static std::mutex mutex;
  static Digest last_key;
  static std::weak_ptr<const std::vector<int32_t>> last;
  Hasher hasher;
  vocabulary.describe(hasher);
  hasher.add(text);
  hasher.add_integer(special_tokens);
  const Digest key = hasher.digest();
  const std::lock_guard lock(mutex);
  Tokens known = last.lock();
  if (known && key == last_key) return known;
  std::vector<int32_t> tokens = special_tokens ? vocabulary.encode_prompt(text) : vocabulary.encode(text);
  tokens.shrink_to_fit();
  known = std::make_shared<const std::vector<int32_t>>(std::move(tokens));
  last = known;
  last_key = key;
  return known;
}

std::unique_ptr<Dataset> dataset_of(const DataConfig& config, const std::string& text, Split split,
                                    const std::string& where) {
  check_context(config);
  check(split != Split::test, "[text] a text has no test split; its last part is split \"validation\"");
  if (text.empty()) fail("[text] '{}' is empty", where);
  std::unique_ptr<Vocabulary> vocabulary = make_vocabulary(config, text);
  const Tokens tokens = tokens_of(*vocabulary, text, config.special_tokens);
  const auto count = static_cast<int64_t>(tokens->size());
  const int64_t middle = border(config, count);
  const bool first = split == Split::train;
  auto part = std::make_unique<TokensInMemory>(tokens, first ? 0 : middle, first ? middle : count);
  return perhaps_masked(config,
                        std::make_unique<TextDataset>(config, std::move(part), std::move(vocabulary), split, where));
}

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
  return dataset_of(config, read_texts(config), split, config.path);
}

std::unique_ptr<Dataset> open_tokens(const DataConfig& config, Split split) {
  check_context(config);
  check_setting(!config.special_tokens, "data.special_tokens",
                "has no effect on files of tokens; tokenize encode --special-tokens makes them");
  namespace fs = std::filesystem;
  const fs::path path = config.path;
  std::vector<fs::path> training, second;
  if (fs::is_directory(path)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      const fs::path& file = entry.path();
      if (file.extension() != ".bin") continue;
      (file.filename().string().find("val") != std::string::npos ? second : training).push_back(file);
    }
    if (training.empty()) training.swap(second);
    if (training.empty()) fail("[tokens] '{}' has no file *.bin", config.path);
  } else {
    training.push_back(path);
  }
  check(split != Split::test || !second.empty(),
        "[tokens] '{}' has no test split: no files of its own for it, with \"val\" in their names", config.path);
  // Without a second part, or with a fraction, validation is the end of the training part.
  const bool cut = split != Split::test && (second.empty() || config.validation_fraction != 0);
  std::vector<fs::path>& chosen = cut || split == Split::train ? training : second;
  std::ranges::sort(chosen);
  const auto files = std::make_shared<std::vector<TokenFile>>();
  int64_t tokens = 0;
  for (const fs::path& file : chosen) tokens += files->emplace_back(file).size();
  const int64_t middle = cut ? border(config, tokens) : 0;
  const int64_t begin = cut && split == Split::validation ? middle : 0;
  const int64_t end = cut && split == Split::train ? middle : tokens;

  fs::path tokenizer = config.tokenizer;
  if (tokenizer.empty()) tokenizer = (fs::is_directory(path) ? path : path.parent_path()) / "tokenizer.json";
  check_setting(!config.tokenizer.empty() || fs::exists(tokenizer), "data.tokenizer",
                "must name the tokenizer that made the tokens: there is no {}", tokenizer.string());
  return perhaps_masked(config,
                        std::make_unique<TextDataset>(config, std::make_unique<TokensInFiles>(files, begin, end),
                                                      Bpe::load(tokenizer), split, config.path));
}

std::unique_ptr<Dataset> open_synthetic_text(const DataConfig& config, Split split) {
  check_setting(config.size >= 1 && config.size <= kMostSynthetic, "data.size", "must be from 1 to {}, got {}",
                kMostSynthetic, config.size);
  std::string text;
  for (int64_t i = 0; i < config.size; ++i) {
    const Random4 words = philox(static_cast<uint64_t>(config.data_seed) ^ key_of("data.synthetic_text"),
                                 static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0);
    const uint32_t a = words.v[0] % 100, b = words.v[1] % 100;
    text += fmt::format("{}+{}={}\n", a, b, a + b);
  }
  return dataset_of(config, text, split, "synthetic_text");
}

}  // namespace elinvar
