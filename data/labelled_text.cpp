// Texts with labels (data/text_rows.h). The input is the tokens (T) int32, of which the first is a symbol after those
// of the vocabulary, for the text as a whole, and those beyond the text are 0; and the number of the others, () int32.
// Longer texts are cut. The target is the label, numbered in the order of the sorted names.
#include "data/labelled_text.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "data/row_splits.h"
#include "data/tensor_dataset.h"
#include "data/text_rows.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

// Returns the tokenizer.json of a vocabulary, which begins each text with the symbol for the text as a whole.
std::string tokenizer_of(const Vocabulary& vocabulary) {
  const std::string text = vocabulary.tokenizer_json();
  if (text.empty()) return "";
  using Ordered = nlohmann::ordered_json;
  Ordered json = Ordered::parse(text);
  const Ordered whole = {{"SpecialToken", {{"id", kWholeText}, {"type_id", 0}}}};
  const auto sequence = [](const char* name) { return Ordered{{"Sequence", {{"id", name}, {"type_id", 0}}}}; };
  const Ordered first = sequence("A"), second = sequence("B");
  json["added_tokens"].push_back({{"id", vocabulary.size()},
                                  {"content", kWholeText},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}});
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", Ordered::array({whole, first})},
                            {"pair", Ordered::array({whole, first, second})},
                            {"special_tokens",
                             {{kWholeText,
                               {{"id", kWholeText},
                                {"ids", Ordered::array({vocabulary.size()})},
                                {"tokens", Ordered::array({kWholeText})}}}}}};
  return json.dump(1, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

class LabelledTexts {
 public:
  explicit LabelledTexts(const DataConfig& config) : config_(config), label_(config.target.at(0)) {}

  int64_t read(const fs::path& file) {
    const TextField fields[] = {{config_.text, "data.text"}, {label_, "data.target"}};
    each_row_of_texts(file, fields, [&](const std::string& where, std::span<std::string> row) {
      if (row[0].empty()) fail("{}: the text is empty", where);
      if (row[1].empty()) fail("{}: the label is missing", where);
      texts_.push_back(std::move(row[0]));
      labels_.push_back(std::move(row[1]));
    });
    return static_cast<int64_t>(texts_.size());
  }
  const std::vector<std::string>& texts() const { return texts_; }

  TensorSamples samples(const std::vector<int64_t>& rows, const std::shared_ptr<const Vocabulary>& symbols) const {
    const Vocabulary& vocabulary = *symbols;
    const auto n = static_cast<int64_t>(rows.size());
    const int64_t length = config_.context;
    Tensor tokens = Tensor::zeros({n, length}, DType::i32), lengths = Tensor::empty({n, 1}, DType::i32),
           targets = Tensor::empty({n}, DType::i64);
    std::map<std::string, int64_t> labels;
    for (const std::string& label : labels_) labels.emplace(label, 0);
    int64_t next = 0;
    for (auto& [label, number] : labels) number = next++;
    for (int64_t i = 0; i < n; ++i) {
      const auto row = static_cast<size_t>(rows[static_cast<size_t>(i)]);
      const std::vector<int32_t> text = vocabulary.encode(texts_[row]);
      const int64_t count = std::min<int64_t>(length - 1, static_cast<int64_t>(text.size()));
      int32_t* const begin = tokens.data<int32_t>() + i * length;
      *begin = static_cast<int32_t>(vocabulary.size());
      std::copy_n(text.begin(), count, begin + 1);
      lengths.data<int32_t>()[i] = static_cast<int32_t>(1 + count);
      targets.data<int64_t>()[i] = labels.at(labels_[row]);
    }
    TensorSamples samples{.inputs = tokens,
                          .targets = targets,
                          .classes = next,
                          .further_inputs = {lengths},
                          .symbols = {{vocabulary.size() + 1}, {length + 1}},
                          .tokenizer = [symbols] { return tokenizer_of(*symbols); }};
    for (const auto& [label, number] : labels) samples.class_names.push_back(label);
    return samples;
  }

 private:
  DataConfig config_;
  std::string label_;
  std::vector<std::string> texts_, labels_;
};

}  // namespace

std::unique_ptr<Dataset> open_labelled_text(const DataConfig& config, Split split) {
  check_setting(config.target.size() == 1, "data.target", "must name the one field that is the label, got {} fields",
                config.target.size());
  check_setting(config.context >= 2 && config.context <= 1 << 20, "data.context",
                "must be from 2 to 2^20 tokens, got {}", config.context);
  LabelledTexts texts(config);
  const SplitRows rows =
      read_split(config, split, has_rows_of_texts, [&](const fs::path& file) { return texts.read(file); });
  return tensor_dataset(texts.samples(rows.rows, vocabulary_of(config, texts.texts())));
}

}  // namespace elinvar
