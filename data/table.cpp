// Rows of numbers and categories from .csv, .tsv and .jsonl files (data/text_rows.h). A missing value is an empty
// field, or null.
//
// The first input is the numbers (F) float32, the next one the categories (K) int32; without numbers the categories are
// the first. Numbers are `scale`d:
//   standard   (x - mean) / deviation; both are sums over the training rows, in their order, in binary64. A missing
//              number becomes 0
//   log        log(1 + x) for x >= 0, -log(1 - x) below, in float32 of tensor/math-inl.h; a missing number becomes 0
//   none       as they are; missing numbers are errors
// A category's index is its place among the sorted texts that occur in its column, from 1 on; 0 is an empty field. With
// `buckets` B it is 1 + key_of(text) % B instead, which needs no list and suits columns of very many texts.
//
// A column whose `most_ids` is above 1 has up to so many categories in a field, divided by `separator` ("jazz|rock"),
// or in .jsonl a list. A sample has their indices in this order, then -1 for each category that is missing.
//
// The targets are numbers, or with `labels` the text of one column is a class, with a number as for categories but
// from 0 on.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "data/row_splits.h"
#include "data/table.h"
#include "data/tensor_dataset.h"
#include "data/text_rows.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/ops/pointwise.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

// The texts of a column of categories. Their numbers while files are read are in the order of appearance.
struct Texts {
  std::map<std::string, int32_t, std::less<>> numbers;
  int32_t number_of(const std::string& text) {
    return numbers.try_emplace(text, static_cast<int32_t>(numbers.size())).first->second;
  }
  // Returns for each number in the order of appearance the one in the order of the texts.
  std::vector<int32_t> sorted() const {
    std::vector<int32_t> places(numbers.size());
    int32_t place = 0;
    for (const auto& [text, number] : numbers) places[static_cast<size_t>(number)] = place++;
    return places;
  }
};

class Table {
 public:
  explicit Table(const DataConfig& config)
      : config_(config),
        texts_(config.categories.size()),
        most_ids_(most_ids_of(config, config.categories.size())),
        widths_(most_ids_.empty() ? std::vector<int64_t>(texts_.size(), 1) : most_ids_) {}

  // Adds the rows of a file.
  void read(const fs::path& file) {
    const std::vector<TextField> fields = fields_to_read();
    each_row_of_texts(file, fields, [&](const std::string& row, std::span<std::string> texts) {
      size_t at = 0;
      const auto where = [&] { return fmt::format("{}, column '{}'", row, fields[at].name); };
      for (size_t i = 0; i < config_.numbers.size(); ++i, ++at) numbers_.push_back(number(texts[at], where));
      for (size_t i = 0; i < config_.categories.size(); ++i, ++at)
        if (widths_[i] == 1) categories_.push_back(category(i, texts[at]));
        else add_bag(i, texts[at], where);
      for (size_t i = 0; i < config_.target.size(); ++i, ++at) add_target(texts[at], where);
      ++rows_;
    });
  }

  int64_t rows() const { return rows_; }

  // Returns the samples of these rows; `training` are the rows whose numbers give the scale.
  TensorSamples samples(const std::vector<int64_t>& rows, const std::vector<int64_t>& training) const {
    TensorSamples samples;
    std::vector<Tensor> inputs;
    const auto n = static_cast<int64_t>(rows.size());
    if (!config_.numbers.empty()) {
      inputs.push_back(scaled(rows, training));
      samples.symbols.emplace_back();
      samples.most_ids.emplace_back();
    }
    if (!config_.categories.empty()) {
      inputs.push_back(indices(rows));
      samples.symbols.push_back(symbols());
      samples.most_ids.push_back(most_ids_);
    }
    samples.inputs = inputs.at(0);
    samples.further_inputs.assign(inputs.begin() + 1, inputs.end());
    if (config_.labels) {
      const std::vector<int32_t> places = labels_.sorted();
      samples.targets = Tensor::empty({n}, DType::i64);
      for (int64_t i = 0; i < n; ++i)
        samples.targets.data<int64_t>()[i] =
            places[static_cast<size_t>(classes_[static_cast<size_t>(rows[static_cast<size_t>(i)])])];
      samples.classes = static_cast<int64_t>(places.size());
      for (const auto& [text, number] : labels_.numbers) samples.class_names.push_back(text);
      return samples;
    }
    const auto width = static_cast<int64_t>(config_.target.size());
    samples.targets = Tensor::empty(width == 1 ? Shape{n} : Shape{n, width});
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < width; ++k)
        samples.targets.data<float>()[i * width + k] =
            targets_[static_cast<size_t>(rows[static_cast<size_t>(i)] * width + k)];
    return samples;
  }

 private:
  std::vector<TextField> fields_to_read() const {
    std::vector<TextField> fields;
    for (const std::string& name : config_.numbers) fields.push_back({name, "data.numbers", JsonField::value});
    for (size_t i = 0; i < config_.categories.size(); ++i)
      fields.push_back({config_.categories[i], "data.categories", widths_[i] == 1 ? JsonField::value : JsonField::list,
                        config_.separator});
    for (const std::string& name : config_.target) fields.push_back({name, "data.target", JsonField::value});
    // A column may be both a number and a category, but it may not be either twice, or an input and a target.
    for (size_t i = 0; i < fields.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        const std::string_view key = fields[i].key;
        const bool clash = key == "data.target" || key == fields[j].key;
        check_setting(!clash || fields[i].name != fields[j].name, key, "names '{}', which {} names already",
                      fields[i].name, fields[j].key);
      }
    return fields;
  }

  template <class Where>
  float number(const std::string& text, const Where& where) const {
    if (text.empty()) {
      if (config_.scale == "none") fail("{}: a number is missing; data.scale = \"standard\" allows that", where());
      return kMissing;
    }
    float value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
      fail("{}: '{}' is no number of float32", where(), text);
    return value;
  }

  int32_t category(size_t column, const std::string& text) {
    if (text.empty()) return 0;
    if (config_.buckets > 0) return 1 + static_cast<int32_t>(key_of(text) % static_cast<uint64_t>(config_.buckets));
    return 1 + texts_[column].number_of(text);
  }

  // Adds the categories of a field that may have several.
  template <class Where>
  void add_bag(size_t column, const std::string& field, const Where& where) {
    const int64_t most = widths_[column];
    int64_t count = 0;
    for (size_t begin = 0; !field.empty() && begin <= field.size(); ++count) {
      const size_t end = std::min(field.find(config_.separator, begin), field.size());
      if (end == begin)
        fail("{}: the field '{}' has an empty category; '{}' stands between two of them", where(), field,
             config_.separator);
      if (count == most) fail("{}: more categories than the {} of data.most_ids", where(), most);
      categories_.push_back(category(column, field.substr(begin, end - begin)));
      begin = end + 1;
    }
    categories_.insert(categories_.end(), static_cast<size_t>(most - count), -1);
  }

  template <class Where>
  void add_target(const std::string& text, const Where& where) {
    if (text.empty()) fail("{}: the target is missing", where());
    if (config_.labels) classes_.push_back(labels_.number_of(text));
    else targets_.push_back(number(text, where));
  }

  std::vector<int64_t> symbols() const {
    std::vector<int64_t> all;
    for (const Texts& texts : texts_)
      all.push_back(1 + (config_.buckets > 0 ? config_.buckets : static_cast<int64_t>(texts.numbers.size())));
    return all;
  }

  Tensor indices(const std::vector<int64_t>& rows) const {
    const auto width = static_cast<size_t>(std::accumulate(widths_.begin(), widths_.end(), int64_t{0}));
    Tensor all = Tensor::empty({static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)}, DType::i32);
    for (size_t column = 0, begin = 0; column < widths_.size(); ++column) {
      const std::vector<int32_t> places = texts_[column].sorted();
      const size_t end = begin + static_cast<size_t>(widths_[column]);
      for (size_t i = 0; i < rows.size(); ++i)
        for (size_t k = begin; k < end; ++k) {
          const int32_t index = categories_[static_cast<size_t>(rows[i]) * width + k];
          all.data<int32_t>()[i * width + k] =
              index <= 0 || config_.buckets > 0 ? index : 1 + places[static_cast<size_t>(index - 1)];
        }
      begin = end;
    }
    return all;
  }

  Tensor scaled(const std::vector<int64_t>& rows, const std::vector<int64_t>& training) const {
    const size_t width = config_.numbers.size();
    Tensor all = Tensor::empty({static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)});
    for (size_t k = 0; k < width; ++k) {
      const auto at = [&](int64_t row) { return numbers_[static_cast<size_t>(row) * width + k]; };
      const auto [mean, deviation] =
          config_.scale == "standard" ? statistics(training, at) : std::pair<double, double>(0, 1);
      for (size_t i = 0; i < rows.size(); ++i) {
        const float x = at(rows[i]);
        all.data<float>()[i * width + k] =
            std::isnan(x) ? 0 : static_cast<float>((static_cast<double>(x) - mean) / deviation);
      }
    }
    if (config_.scale != "log") return all;
    // sign(x) log1p(|x|): the product with the sign is exact.
    const Tensor magnitude = log1p(abs(all));
    for (int64_t i = 0; i < all.numel(); ++i)
      all.data<float>()[i] = std::copysign(magnitude.data<float>()[i], all.data<float>()[i]);
    return all;
  }

  // Returns the mean and the deviation of the numbers that are there; a deviation of 0 counts as 1.
  template <class At>
  static std::pair<double, double> statistics(const std::vector<int64_t>& rows, const At& at) {
    double sum = 0, squares = 0;
    int64_t count = 0;
    for (const int64_t row : rows)
      if (const double x = at(row); !std::isnan(x)) {
        sum += x;
        ++count;
      }
    const double mean = count > 0 ? sum / static_cast<double>(count) : 0;
    for (const int64_t row : rows)
      if (const double d = at(row) - mean; !std::isnan(d)) squares += d * d;
    const double deviation = count > 0 ? std::sqrt(squares / static_cast<double>(count)) : 0;
    return {mean, deviation > 0 ? deviation : 1};
  }

  DataConfig config_;
  int64_t rows_ = 0;
  std::vector<float> numbers_, targets_;  // row after row
  std::vector<int32_t> categories_, classes_;
  std::vector<Texts> texts_;                // of each column of categories
  std::vector<int64_t> most_ids_, widths_;  // of each, the latter also if none has several
  Texts labels_;
};

void check_table(const DataConfig& config) {
  check_setting(!config.target.empty(), "data.target", "must name the column that is to be predicted");
  check_setting(!config.labels || config.target.size() == 1, "data.target",
                "must be one column with data.labels = true, got {}", config.target.size());
  check_setting(!config.numbers.empty() || !config.categories.empty(), "data.numbers",
                "or data.categories must name at least one column");
  check_setting(config.scale == "standard" || config.scale == "log" || config.scale == "none", "data.scale",
                "must be \"standard\", \"log\" or \"none\", got \"{}\"", config.scale);
  check_setting(config.buckets >= 0 && config.buckets < int64_t{1} << 31, "data.buckets",
                "must be from 0 to 2^31 - 1, got {}", config.buckets);
  check_setting(config.separator.size() == 1, "data.separator", "must be one character, got \"{}\"", config.separator);
}

}  // namespace

std::vector<int64_t> most_ids_of(const DataConfig& config, size_t columns) {
  constexpr int64_t kMost = 4096;
  const std::vector<int64_t>& most = config.most_ids;
  check_setting(most.empty() || most.size() == columns, "data.most_ids",
                "must have a number for each of the {} columns of categories, got {}", columns, most.size());
  for (const int64_t n : most)
    check_setting(n >= 1 && n <= kMost, "data.most_ids", "must be from 1 to {}, got {}", kMost, n);
  return std::ranges::all_of(most, [](int64_t n) { return n == 1; }) ? std::vector<int64_t>() : most;
}

std::unique_ptr<Dataset> open_table(const DataConfig& config, Split split) {
  check_table(config);
  Table table(config);
  const SplitRows rows = read_split(config, split, has_rows_of_texts, [&](const fs::path& file) {
    table.read(file);
    return table.rows();
  });
  return tensor_dataset(table.samples(rows.rows, rows.training));
}

}  // namespace elinvar
