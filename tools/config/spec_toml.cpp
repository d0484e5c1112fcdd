#include "tools/config/spec_toml.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

bool is_list(const toml::node& node) {
  const toml::array* array = node.as_array();
  return array != nullptr && !array->empty() && array->is_homogeneous(toml::node_type::table);
}

// Returns the elements if all have one type. Integers among other numbers are converted.
template <class T, class Convert>
std::optional<std::vector<T>> elements_of(const toml::array& array, Convert convert) {
  std::vector<T> values;
  for (const toml::node& element : array) {
    const auto value = convert(element);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

Value value_of(const TomlSource& source, const std::string& key, const toml::node& node) {
  if (node.is_boolean()) return **node.as_boolean();
  if (node.is_integer()) return **node.as_integer();
  if (node.is_floating_point()) return **node.as_floating_point();
  if (node.is_string()) return **node.as_string();
  if (const toml::array* array = node.as_array()) {
    if (auto values = elements_of<int64_t>(*array, [](auto& e) { return e.template value_exact<int64_t>(); }))
      return *values;
    if (auto values = elements_of<double>(
            *array, [](auto& e) { return e.is_number() ? e.template value<double>() : std::optional<double>(); }))
      return *values;
    if (auto values = elements_of<std::string>(*array, [](auto& e) { return e.template value_exact<std::string>(); }))
      return *values;
  }
  check(false, "{}: {} must be a number, text, true or false, an array of numbers or of texts, or an array of tables",
        source.where(key, node), key);
  return {};
}

Spec spec_of(const TomlSource& source, const std::string& path, const toml::table& table) {
  Spec spec;
  spec.place = source.where(path, table);
  for (const auto& [name, node] : table) {
    const std::string key(name.str()), full = path + "." + key;
    if (key == "kind") {
      check(node.is_string(), "{}: {} must be text in quotes", source.where(full, node), full);
      spec.kind = **node.as_string();
      spec.place = source.where(full, node);
    } else if (is_list(node)) {
      for (const toml::node& element : *node.as_array())
        spec.lists[key].push_back(spec_of(source, full, *element.as_table()));
    } else {
      spec.settings[key] = {value_of(source, full, node), source.where(full, node)};
    }
  }
  return spec;
}

std::string text_of(const Setting& setting) {
  return std::visit([](const auto& value) { return TableWriter::text(value); }, setting.value);
}

// Returns a key as TOML: quoted unless it is a bare key.
std::string key_text(const std::string& key) {
  const bool bare = !key.empty() && std::ranges::all_of(key, [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) || c == '_' || c == '-');
  });
  return bare ? key : TableWriter::text(key);
}

std::string inline_table(const Spec& spec) {
  std::string text;
  const auto add = [&](const std::string& key, const std::string& value) {
    text += (text.empty() ? "" : ", ") + key_text(key) + " = " + value;
  };
  if (!spec.kind.empty()) add("kind", TableWriter::text(spec.kind));
  for (const auto& [key, setting] : spec.settings) add(key, text_of(setting));
  for (const auto& [key, list] : spec.lists) {
    std::string elements;
    for (const Spec& element : list) elements += (elements.empty() ? "" : ", ") + inline_table(element);
    add(key, "[" + elements + "]");
  }
  return "{" + text + "}";
}

}  // namespace

Spec read_model_spec(const TomlSource& source) {
  check(source.root().contains("model"), "{}: a [model] table is missing: which network is to be trained?",
        source.places()("model"));
  Spec spec = spec_of(source, "model", source.table("model"));
  if (spec.kind.empty() && spec.lists.contains("layer")) spec.kind = "layers";
  return spec;
}

std::string model_spec_to_toml(const Spec& spec) {
  std::string text = "[model]\nkind = " + TableWriter::text(spec.kind) + "\n";
  for (const auto& [key, setting] : spec.settings) text += key_text(key) + " = " + text_of(setting) + "\n";
  for (const auto& [key, list] : spec.lists) {
    text += key_text(key) + " = [\n";
    for (const Spec& element : list) text += "  " + inline_table(element) + ",\n";
    text += "]\n";
  }
  return text;
}

Spec read_spec(const TomlSource& source, const std::string& table, const std::vector<std::string>& without) {
  Spec spec = spec_of(source, table, source.table(table));
  for (const std::string& key : without) {
    spec.settings.erase(key);
    spec.lists.erase(key);
  }
  return spec;
}

std::vector<std::pair<std::string, std::string>> entries_of(const Spec& spec) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& [key, setting] : spec.settings) entries.emplace_back(key_text(key), text_of(setting));
  for (const auto& [key, list] : spec.lists) {
    std::string elements;
    for (const Spec& element : list) elements += (elements.empty() ? "" : ", ") + inline_table(element);
    entries.emplace_back(key_text(key), "[" + elements + "]");
  }
  return entries;
}

}  // namespace elinvar
