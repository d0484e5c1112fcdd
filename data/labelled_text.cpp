// Texts with labels: rows of a .csv or .tsv file whose first line names the columns, or of a .jsonl file of objects.
// The input is the tokens (T) int32, of which the first is a symbol after those of the vocabulary, for the text as a
// whole, and those beyond the text are 0; and the number of the others, () int32. Longer texts are cut. The target is
// the label, numbered in the order of the sorted names.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "data/bpe.h"
#include "data/csv.h"
#include "data/labelled_text.h"
#include "data/row_splits.h"
#include "data/tensor_dataset.h"
#include "data/vocabulary.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

class LabelledTexts {
 public:
  explicit LabelledTexts(const DataConfig& config) : config_(config), label_(config.target.at(0)) {}

  int64_t read(const fs::path& file) {
    if (file.string().ends_with(".jsonl")) read_json(file);
    else read_csv(file);
    return static_cast<int64_t>(texts_.size());
  }
  const std::vector<std::string>& texts() const { return texts_; }

  TensorSamples samples(const std::vector<int64_t>& rows, const Vocabulary& vocabulary) const {
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
                          .symbols = {{vocabulary.size() + 1}, {length + 1}}};
    for (const auto& [label, number] : labels) samples.class_names.push_back(label);
    return samples;
  }

 private:
  void add(std::string text, std::string label, const std::string& where) {
    if (text.empty()) fail("{}: the text is empty", where);
    if (label.empty()) fail("{}: the label is missing", where);
    texts_.push_back(std::move(text));
    labels_.push_back(std::move(label));
  }

  void read_csv(const fs::path& file) {
    size_t text = 0, label = 0, width = 0;
    each_csv_row(file.string(), [&](int64_t line, std::span<const std::string> fields) {
      if (width == 0) {
        const std::vector<std::string> names(fields.begin(), fields.end());
        width = names.size();
        const auto place = [&](const std::string& name, const char* key) {
          const auto found = std::ranges::find(names, name);
          check_setting(found != names.end(), key, "names '{}', which is no column of '{}'{}; its columns are {}", name,
                        file.string(), spelling_hint(name, names), fmt::join(names, ", "));
          return static_cast<size_t>(found - names.begin());
        };
        text = place(config_.text, "data.text");
        label = place(label_, "data.target");
        return;
      }
      const std::string where = fmt::format("'{}', line {}", file.string(), line);
      if (fields.size() != width)
        fail("{}: {} fields, but the first line names {} columns", where, fields.size(), width);
      add(fields[text], fields[label], where);
    });
    if (width == 0) fail("'{}' is empty: its first line must name its columns", file.string());
  }

  void read_json(const fs::path& file) {
    std::ifstream lines(file, std::ios::binary);
    if (!lines) fail("cannot open '{}'", file.string());
    std::string line;
    for (int64_t number = 1; std::getline(lines, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const std::string where = fmt::format("'{}', line {}", file.string(), number);
      const auto json = parse_json<nlohmann::json>(line);
      if (!json.is_object()) fail("{}: expected a JSON object", where);
      const auto field = [&](const std::string& name) {
        const auto found = json.find(name);
        if (found == json.end()) fail("{}: the object has no '{}'", where, name);
        if (found->is_string()) return found->template get<std::string>();
        if (!found->is_number_integer()) fail("{}: '{}' must be text or an integer", where, name);
        return found->dump();
      };
      add(field(config_.text), field(label_), where);
    }
    if (lines.bad()) fail("cannot read '{}'", file.string());
  }

  DataConfig config_;
  std::string label_;
  std::vector<std::string> texts_, labels_;
};

std::unique_ptr<Vocabulary> vocabulary_of(const DataConfig& config, const std::vector<std::string>& texts) {
  check_setting(config.tokens == "byte" || config.tokens == "character" || config.tokens == "bpe", "data.tokens",
                "must be \"byte\", \"character\" or \"bpe\", got \"{}\"", config.tokens);
  if (config.tokens == "byte") return std::make_unique<ByteVocabulary>();
  if (config.tokens == "bpe") {
    check_setting(!config.tokenizer.empty(), "data.tokenizer", "must name a tokenizer.json for tokens = \"bpe\"");
    return Bpe::load(config.tokenizer);
  }
  std::string all;
  for (const std::string& text : texts) all += text;
  return std::make_unique<CharacterVocabulary>(all);
}

}  // namespace

std::unique_ptr<Dataset> open_labelled_text(const DataConfig& config, Split split) {
  check_setting(config.target.size() == 1, "data.target", "must name the one field that is the label, got {} fields",
                config.target.size());
  check_setting(config.context >= 2 && config.context <= 1 << 20, "data.context",
                "must be from 2 to 2^20 tokens, got {}", config.context);
  LabelledTexts texts(config);
  const auto of_kind = [](std::string_view name) { return is_csv_name(name) || name.ends_with(".jsonl"); };
  const SplitRows rows = read_split(config, split, of_kind, [&](const fs::path& file) { return texts.read(file); });
  return tensor_dataset(texts.samples(rows.rows, *vocabulary_of(config, texts.texts())));
}

}  // namespace elinvar
