#pragma once
// Rows of texts: of a .csv or .tsv file whose first line names the columns, or of a .jsonl file of objects.
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/vocabulary.h"

namespace elinvar {

// The values that fields of an object may have: texts and integers; or also other numbers, true, false and null, which
// is an empty text; or also lists of texts and numbers, which are joined by a separator that none of them has.
enum class JsonField { text, value, list };

struct TextField {
  std::string name;
  const char* key;  // the setting that names it
  JsonField json = JsonField::text;
  std::string separator = {};  // of lists
};

// Calls `row` for each row with its place, for messages, and the texts of these fields. Throws Failure, which names
// file, line and field, if the file cannot be read or is malformed, and what check_setting() throws if a .csv or .tsv
// file has no such column.
using TextRow = std::function<void(const std::string& where, std::span<std::string> texts)>;
void each_row_of_texts(const std::filesystem::path& file, std::span<const TextField> fields, const TextRow& row);

bool has_rows_of_texts(std::string_view path);  // ends with .csv, .tsv or .jsonl

// Makes the vocabulary that data.tokens names; that of "character" is of the code points in `texts`. Throws what
// check_setting() throws for other names.
std::unique_ptr<Vocabulary> vocabulary_of(const DataConfig& config, const std::vector<std::string>& texts);

}  // namespace elinvar
