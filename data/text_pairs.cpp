#include "data/text_pairs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "data/masked_tokens.h"
#include "data/row_splits.h"
#include "data/text_rows.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz";

struct TextPair {
  std::vector<int32_t> source, target;
};

class TextPairs : public Dataset {
 public:
  TextPairs(const DataConfig& config, std::unique_ptr<Vocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)),
        end_(static_cast<int32_t>(vocabulary_->size())),
        source_length_(config.context),
        target_length_(config.target_context == 0 ? config.context : config.target_context) {}

  SampleFormat format() const override {
    return {.inputs = {{Shape{source_length_}, DType::i32, {classes()}},
                       {Shape{target_length_}, DType::i32, {classes()}},
                       {Shape{1}, DType::i32, {source_length_ + 1}}},
            .target = {Shape{target_length_}, DType::i64}};
  }
  int64_t classes() const override { return end_ + 2; }
  const Vocabulary* vocabulary() const override { return vocabulary_.get(); }
  PairsForm form() const { return {source_length_, target_length_, end_, end_ + 1}; }

  void read(int64_t index, const Draw&, const SampleBuffers& sample) const override {
    TextPair pair = pair_of(index);
    pair.source.push_back(end_);
    pair.target.push_back(end_);
    const auto sources = std::min(source_length_, static_cast<int64_t>(pair.source.size())),
               targets = std::min(target_length_, static_cast<int64_t>(pair.target.size()));
    std::fill_n(std::copy_n(pair.source.begin(), sources, sample.input<int32_t>(0)), source_length_ - sources, 0);
    int32_t* const shifted = sample.input<int32_t>(1);
    *shifted = end_ + 1;
    std::fill_n(std::copy_n(pair.target.begin(), targets - 1, shifted + 1), target_length_ - targets, 0);
    *sample.input<int32_t>(2) = static_cast<int32_t>(sources);
    std::fill_n(std::copy_n(pair.target.begin(), targets, sample.target<int64_t>()), target_length_ - targets,
                kIgnoredTarget);
  }

  void describe(Hasher& hasher) const override {
    for (const int64_t v : {source_length_, target_length_, size()}) hasher.add_integer(v);
    vocabulary_->describe(hasher);
  }

 protected:
  virtual TextPair pair_of(int64_t index) const = 0;

  std::unique_ptr<Vocabulary> vocabulary_;
  int32_t end_;  // the start is the next symbol
  int64_t source_length_, target_length_;
};

class PairsOfRows final : public TextPairs {
 public:
  PairsOfRows(const DataConfig& config, std::unique_ptr<Vocabulary> vocabulary, const std::vector<std::string>& texts,
              const std::vector<int64_t>& rows)
      : TextPairs(config, std::move(vocabulary)) {
    for (const int64_t row : rows)
      for (const int64_t text : {2 * row, 2 * row + 1}) {
        const std::vector<int32_t> encoded = vocabulary_->encode(texts[static_cast<size_t>(text)]);
        tokens_.insert(tokens_.end(), encoded.begin(), encoded.end());
        ends_.push_back(tokens_.size());
      }
  }

  int64_t size() const override { return static_cast<int64_t>(ends_.size()) / 2; }

  void describe(Hasher& hasher) const override {
    TextPairs::describe(hasher);
    for (const size_t end : ends_) hasher.add_integer(static_cast<int64_t>(end));
    hasher.add(tokens_.data(), tokens_.size() * sizeof(int32_t));
  }

 private:
  TextPair pair_of(int64_t index) const override {
    const auto text = [this](size_t i) {
      const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(i == 0 ? 0 : ends_[i - 1]);
      return std::vector<int32_t>(begin, tokens_.begin() + static_cast<std::ptrdiff_t>(ends_[i]));
    };
    const auto row = static_cast<size_t>(index);
    return {text(2 * row), text(2 * row + 1)};
  }

  std::vector<int32_t> tokens_;  // of all texts
  std::vector<size_t> ends_;     // of each text: the source and the target of each row
};

class SyntheticPairs final : public TextPairs {
 public:
  // Different values of `part` give different samples.
  SyntheticPairs(const DataConfig& config, uint32_t part, int64_t size)
      : TextPairs(config,
                  std::make_unique<CharacterVocabulary>(kAlphabet.substr(0, static_cast<size_t>(config.classes)))),
        key_(static_cast<uint64_t>(config.data_seed) ^ key_of("data.synthetic_pairs")),
        part_(part),
        size_(size) {}

  int64_t size() const override { return size_; }

  void describe(Hasher& hasher) const override {
    TextPairs::describe(hasher);
    for (const int64_t v : {static_cast<int64_t>(key_), int64_t{part_}}) hasher.add_integer(v);
  }

 private:
  TextPair pair_of(int64_t index) const override {
    const auto words = [&](int64_t block) {
      return philox(key_, 1 + part_, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                    static_cast<uint32_t>(block));
    };
    const int64_t count = 1 + random_below(words(0).v[0], source_length_ - 1);
    TextPair pair;
    for (int64_t i = 0; i < count; ++i)
      pair.source.push_back(static_cast<int32_t>(random_below(words(1 + i / 4).v[static_cast<size_t>(i % 4)], end_)));
    pair.target = pair.source;
    std::ranges::sort(pair.target);
    return pair;
  }

  uint64_t key_;
  uint32_t part_;
  int64_t size_;
};

void check_lengths(const DataConfig& config) {
  check_setting(config.context >= 2 && config.context <= 1 << 20, "data.context",
                "must be from 2 to 2^20 tokens, got {}", config.context);
  check_setting(config.target_context >= 0 && config.target_context <= 1 << 20, "data.target_context",
                "must be from 0, for data.context, to 2^20 tokens, got {}", config.target_context);
}

}  // namespace

std::unique_ptr<Dataset> open_text_pairs(const DataConfig& config, Split split) {
  check_setting(config.target.size() == 1, "data.target",
                "must name the one field that is the target's text, got {} fields", config.target.size());
  check_lengths(config);
  const TextField fields[] = {{config.text, "data.text"}, {config.target[0], "data.target"}};
  std::vector<std::string> texts;  // the source and the target of each row
  const SplitRows rows = read_split(config, split, has_rows_of_texts, [&](const fs::path& file) {
    each_row_of_texts(file, fields, [&](const std::string& where, std::span<std::string> row) {
      for (size_t i = 0; i < 2; ++i) {
        if (row[i].empty()) fail("{}: '{}' is empty", where, fields[i].name);
        texts.push_back(std::move(row[i]));
      }
    });
    return static_cast<int64_t>(texts.size()) / 2;
  });
  return std::make_unique<PairsOfRows>(config, vocabulary_of(config, texts), texts, rows.rows);
}

std::unique_ptr<Dataset> open_synthetic_pairs(const DataConfig& config, Split split) {
  check_lengths(config);
  check_setting(config.size >= 10 && config.size <= kMostSynthetic, "data.size", "must be from 10 to {}, got {}",
                kMostSynthetic, config.size);
  check_setting(config.classes >= 2 && config.classes <= static_cast<int64_t>(kAlphabet.size()), "data.classes",
                "must be from 2 to {}, got {}", kAlphabet.size(), config.classes);
  const double share = config.validation_fraction > 0 ? config.validation_fraction : 0.1;
  const auto apart = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(config.size) * share));
  return std::make_unique<SyntheticPairs>(config, static_cast<uint32_t>(split),
                                          split == Split::train ? config.size : apart);
}

std::optional<PairsForm> form_of_pairs(const Dataset& data) {
  const auto* const pairs = dynamic_cast<const TextPairs*>(&data);
  if (pairs == nullptr) return std::nullopt;
  return pairs->form();
}

}  // namespace elinvar
