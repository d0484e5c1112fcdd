// Rows of numbers and categories from .csv and .tsv files, whose first line names the columns.
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
// The targets are numbers, or with `labels` the text of one column is a class, with a number as for categories but
// from 0 on.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/csv.h"
#include "data/row_splits.h"
#include "data/table.h"
#include "data/tensor_dataset.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"
#include "tensor/ops/pointwise.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

// The columns of a file that a configuration names.
struct Columns {
  std::vector<size_t> numbers, categories, targets;
  bool operator==(const Columns&) const = default;
};

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
  explicit Table(const DataConfig& config) : config_(config), texts_(config.categories.size()) {}

  // Adds the rows of a file.
  void read(const fs::path& file) {
    std::optional<Columns> columns;
    size_t width = 0;
    each_csv_row(file.string(), [&](int64_t line, std::span<const std::string> fields) {
      if (!columns) {
        columns = columns_of(file, fields);
        width = fields.size();
        return;
      }
      if (fields.size() != width)
        fail("'{}', line {}: {} fields, but the first line names {} columns", file.string(), line, fields.size(),
             width);
      const auto where = [&](const std::string& name) {
        return fmt::format("'{}', line {}, column '{}'", file.string(), line, name);
      };
      for (size_t i = 0; i < columns->numbers.size(); ++i)
        numbers_.push_back(number(fields[columns->numbers[i]], [&] { return where(config_.numbers[i]); }));
      for (size_t i = 0; i < columns->categories.size(); ++i)
        categories_.push_back(category(i, fields[columns->categories[i]]));
      for (size_t i = 0; i < columns->targets.size(); ++i) add_target(i, fields[columns->targets[i]], where);
      ++rows_;
    });
    if (!columns) fail("'{}' is empty: its first line must name its columns", file.string());
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
    }
    if (!config_.categories.empty()) {
      inputs.push_back(indices(rows));
      samples.symbols.push_back(symbols());
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
  Columns columns_of(const fs::path& file, std::span<const std::string> names) const {
    const std::vector<std::string> all(names.begin(), names.end());
    const auto places = [&](const std::vector<std::string>& wanted, const char* key) {
      std::vector<size_t> found;
      for (const std::string& name : wanted) {
        const auto at = std::ranges::find(all, name);
        check_setting(at != all.end(), key, "names '{}', which is no column of '{}'{}; its columns are {}", name,
                      file.string(), spelling_hint(name, all), fmt::join(all, ", "));
        found.push_back(static_cast<size_t>(at - all.begin()));
      }
      return found;
    };
    return {places(config_.numbers, "data.numbers"), places(config_.categories, "data.categories"),
            places(config_.target, "data.target")};
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

  template <class Where>
  void add_target(size_t i, const std::string& text, const Where& where) {
    if (text.empty()) fail("{}: the target is missing", where(config_.target[i]));
    if (config_.labels) classes_.push_back(labels_.number_of(text));
    else targets_.push_back(number(text, [&] { return where(config_.target[i]); }));
  }

  std::vector<int64_t> symbols() const {
    std::vector<int64_t> all;
    for (const Texts& texts : texts_)
      all.push_back(1 + (config_.buckets > 0 ? config_.buckets : static_cast<int64_t>(texts.numbers.size())));
    return all;
  }

  Tensor indices(const std::vector<int64_t>& rows) const {
    const size_t width = texts_.size();
    Tensor all = Tensor::empty({static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)}, DType::i32);
    for (size_t k = 0; k < width; ++k) {
      const std::vector<int32_t> places = texts_[k].sorted();
      for (size_t i = 0; i < rows.size(); ++i) {
        const int32_t index = categories_[static_cast<size_t>(rows[i]) * width + k];
        all.data<int32_t>()[i * width + k] =
            index == 0 || config_.buckets > 0 ? index : 1 + places[static_cast<size_t>(index - 1)];
      }
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
  std::vector<Texts> texts_;  // of each column of categories
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
}

}  // namespace

std::unique_ptr<Dataset> open_table(const DataConfig& config, Split split) {
  check_table(config);
  Table table(config);
  const SplitRows rows = read_split(config, split, is_csv_name, [&](const fs::path& file) {
    table.read(file);
    return table.rows();
  });
  return tensor_dataset(table.samples(rows.rows, rows.training));
}

}  // namespace elinvar
