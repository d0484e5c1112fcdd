#include "data/text_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/csv.h"
#include "tensor/base/check.h"
#include "tensor/base/json.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"

namespace elinvar {
namespace {

void each_csv_row_of_texts(const std::string& file, std::span<const TextField> fields, const TextRow& row) {
  size_t width = 0;
  std::vector<size_t> columns;
  std::vector<std::string> texts(fields.size());
  each_csv_row(file, [&](int64_t line, std::span<const std::string> cells) {
    if (width == 0) {
      const std::vector<std::string> names(cells.begin(), cells.end());
      width = names.size();
      for (const TextField& field : fields) {
        const auto found = std::ranges::find(names, field.name);
        const char* const commas = width > 1 ? "" : " (commas divide fields, in a .tsv tabs)";
        check_setting(found != names.end(), field.key,
                      "names '{}', which is no column of '{}'{}; its first line names the columns {}{}", field.name,
                      file, spelling_hint(field.name, names), fmt::join(names, ", "), commas);
        columns.push_back(static_cast<size_t>(found - names.begin()));
      }
      return;
    }
    const std::string where = fmt::format("'{}', line {}", file, line);
    if (cells.size() != width) fail("{}: {} fields, but the first line names {} columns", where, cells.size(), width);
    for (size_t i = 0; i < columns.size(); ++i) texts[i] = cells[columns[i]];
    row(where, texts);
  });
  if (width == 0) fail("'{}' is empty: its first line must name its columns", file);
}

using Json = nlohmann::json;

std::string text_in(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// Returns the elements of a list, joined.
std::string joined(const Json& list, const TextField& field, const std::string& where) {
  std::string all;
  for (const Json& element : list) {
    const std::string text = element.is_string() || element.is_number() ? text_in(element) : std::string();
    if (text.empty()) fail("{}: the list '{}' must be of texts, which are not empty, and numbers", where, field.name);
    if (text.find(field.separator) != std::string::npos)
      fail("{}: '{}' in the list '{}' has the separator '{}' (data.separator)", where, text, field.name,
           field.separator);
    all += (all.empty() ? "" : field.separator) + text;
  }
  return all;
}

std::string text_of(const Json& value, const TextField& field, const std::string& where) {
  if (field.json == JsonField::list && value.is_array()) return joined(value, field, where);
  const bool any = field.json != JsonField::text;
  if (any && value.is_null()) return {};
  if (!value.is_string() && !value.is_number_integer() && !(any && (value.is_number() || value.is_boolean())))
    fail("{}: '{}' must be text or {}", where, field.name, any ? "a number" : "an integer");
  return text_in(value);
}

void each_json_row_of_texts(const std::string& file, std::span<const TextField> fields, const TextRow& row) {
  std::ifstream lines = open_rows(file);
  std::string line;
  std::vector<std::string> texts(fields.size());
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("'{}', line {}", file, number);
    const auto json = parse_json<Json>(line);
    if (!json.is_object()) fail("{}: expected a JSON object", where);
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string& name = fields[i].name;
      const auto found = json.find(name);
      if (found == json.end()) fail("{}: the object has no '{}'", where, name);
      texts[i] = text_of(*found, fields[i], where);
    }
    row(where, texts);
  }
  if (lines.bad()) fail("cannot read '{}'", file);
}

}  // namespace

void each_row_of_texts(const std::filesystem::path& file, std::span<const TextField> fields, const TextRow& row) {
  if (file.string().ends_with(".jsonl")) each_json_row_of_texts(file.string(), fields, row);
  else each_csv_row_of_texts(file.string(), fields, row);
}

bool has_rows_of_texts(std::string_view path) { return is_csv_name(path) || path.ends_with(".jsonl"); }

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

}  // namespace elinvar
