#include "tools/config/table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/utf8.h"
#include "tensor/base/check.h"
#include "tensor/base/spelling.h"
#include "tools/config/toml_text.h"

namespace elinvar {
namespace {

const char* type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

// Returns a hint for a key that `table` does not know: where the key belongs, or else the name that was probably meant.
// `table` is "" for a key outside all tables.
std::string hint(const std::string& key, const std::string& table, const std::vector<std::string>& known,
                 const KeyHomes& homes) {
  const auto found = homes.find(key);
  if (found == homes.end()) return spelling_hint(key, known);
  if (found->second.contains(table)) return fmt::format("; '{}' is for another {}.kind", key, table);
  return fmt::format("; '{}' belongs in [{}]", key, fmt::join(found->second, "] or ["));
}

std::vector<std::string> names_in(const toml::table& table) {
  std::vector<std::string> names;
  for (const auto& [key, node] : table) names.emplace_back(key.str());
  return names;
}

}  // namespace

std::string OneOf::complaint(const std::string& value) const {
  if (std::find(names.begin(), names.end(), value) != names.end()) return "";
  return fmt::format("does not know '{}'{}", value, spelling_hint(value, names));
}

TomlSource::TomlSource(std::string_view text, std::string name, const std::vector<std::string>& overrides)
    : name_(std::move(name)), root_(parse_toml(text, name_)) {
  for (const std::string& assignment : overrides) override_with(assignment);
}

void TomlSource::override_with(const std::string& assignment) {
  const size_t equals = assignment.find('='), dot = assignment.find('.');
  check(equals != std::string::npos && dot != std::string::npos && 0 < dot && dot + 1 < equals &&
            assignment.find('.', dot + 1) > equals,
        "--set {}: expected table.key=value", assignment);
  const std::string table_name = assignment.substr(0, dot), key = assignment.substr(dot + 1, equals - dot - 1);
  const std::string value = assignment.substr(equals + 1);

  if (!root_.contains(table_name)) root_.insert(table_name, toml::table());
  toml::table* table = root_[table_name].as_table();
  check(table != nullptr, "--set {}: {} is no table in {}", assignment, table_name, name_);
  const std::string text = "value = " + value;
  check_depth(text, "--set " + table_name + "." + key);
  check(is_utf8(value), "--set {}.{}: expected UTF-8", table_name, key);
  toml::table parsed;
  try {
    parsed = toml::parse(text);
  } catch (const toml::parse_error&) {
    parsed.insert("value", value);
  }
  check(parsed.size() == 1, "--set {}.{}: expected one value", table_name, key);
  table->insert_or_assign(key, *parsed.get("value"));
  overridden_.insert(table_name + "." + key);
}

const toml::table& TomlSource::table(const std::string& name) const {
  static const toml::table none;
  const toml::node* node = root_.get(name);
  if (node == nullptr) return none;
  check(node->is_table(), "{}: [{}] must be a table, got {}", where(name, *node), name, type_name(*node));
  return *node->as_table();
}

std::string TomlSource::where(const std::string& key, const toml::node& node) const {
  for (size_t end = key.size(); end != std::string::npos && end > 0; end = key.rfind('.', end - 1))
    if (overridden_.contains(key.substr(0, end))) return "--set " + key.substr(0, end);
  const auto line = node.source().begin.line;
  return line == 0 ? name_ : fmt::format("{}:{}", name_, line);  // 0: a table that only overrides fill
}

Places TomlSource::places() const {
  Places places(name_);
  for (const auto& [name, node] : root_) {
    const std::string table(name.str());
    places.add(table, where(table, node));
    if (!node.is_table()) continue;
    for (const auto& [key, value] : *node.as_table()) {
      const std::string full = table + "." + std::string(key.str());
      places.add(full, where(full, value));
    }
  }
  return places;
}

void TomlSource::refuse_unknown_tables(const std::vector<std::string>& known, const KeyHomes& homes) const {
  for (const std::string& name : names_in(root_)) {
    const toml::node& node = *root_.get(name);
    check(std::find(known.begin(), known.end(), name) != known.end(), "{}: unknown {} '{}'{}", where(name, node),
          node.is_table() ? "table" : "key", name,
          node.is_table() ? spelling_hint(name, known) : hint(name, "", known, homes));
  }
}

TableReader::TableReader(const TomlSource& source, std::string table)
    : source_(source), name_(std::move(table)), table_(source.table(name_)) {}

void TableReader::refuse_unknown_keys(const KeyHomes& homes) const {
  for (const std::string& key : names_in(table_))
    check(std::find(known_.begin(), known_.end(), key) != known_.end(), "{}: unknown key '{}' in [{}]{}",
          source_.where(name_ + "." + key, *table_.get(key)), key, name_, hint(key, name_, known_, homes));
}

void TableReader::refuse(const char* key, const std::string& complaint) const {
  const toml::node* node = table_.get(key);
  const std::string place = node ? source_.where(name_ + "." + key, *node) : source_.where(name_, table_);
  throw UsageError(fmt::format("{}: {}.{} {}", place, name_, key, complaint));
}

void TableReader::complain(const char* key, const toml::node& node, const std::string& complaint) const {
  check(complaint.empty(), "{}: {}.{} {}", source_.where(name_ + "." + key, node), name_, key, complaint);
}

void TableReader::wrong_type(const char* key, const toml::node& node, const char* expected) const {
  throw UsageError(fmt::format("{}: {}.{} must be {}, got {}", source_.where(name_ + "." + key, node), name_, key,
                               expected, type_name(node)));
}

void TableReader::convert(const char* key, const toml::node& node, bool& value) const {
  if (!node.is_boolean()) wrong_type(key, node, "true or false");
  value = **node.as_boolean();
}

void TableReader::convert(const char* key, const toml::node& node, int64_t& value) const {
  if (!node.is_integer()) wrong_type(key, node, "an integer");
  value = **node.as_integer();
}

void TableReader::convert(const char* key, const toml::node& node, int& value) const {
  int64_t wide = 0;
  convert(key, node, wide);
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max())
    complain(key, node, fmt::format("is out of range: {}", wide));
  value = static_cast<int>(wide);
}

void TableReader::convert(const char* key, const toml::node& node, uint64_t& value) const {
  int64_t narrow = 0;
  convert(key, node, narrow);
  if (narrow < 0) complain(key, node, fmt::format("must not be negative, got {}", narrow));
  value = static_cast<uint64_t>(narrow);
}

void TableReader::convert(const char* key, const toml::node& node, double& value) const {
  if (!node.is_number()) wrong_type(key, node, "a number");
  value = node.is_integer() ? static_cast<double>(**node.as_integer()) : **node.as_floating_point();
  if (!std::isfinite(value)) complain(key, node, "must be finite");
}

void TableReader::convert(const char* key, const toml::node& node, std::string& value) const {
  if (!node.is_string()) wrong_type(key, node, "text in quotes");
  value = **node.as_string();
  // File names would end there.
  if (value.find('\0') != std::string::npos) complain(key, node, "must not have a character of the code 0");
}

std::string TableWriter::text(bool value) { return value ? "true" : "false"; }
std::string TableWriter::text(int64_t value) { return std::to_string(value); }
std::string TableWriter::text(uint64_t value) { return std::to_string(value); }

std::string TableWriter::text(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

std::string TableWriter::text(const std::string& value) {
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else quoted += c;
  }
  return quoted + "\"";
}

}  // namespace elinvar
