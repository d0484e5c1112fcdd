#include "tools/config/model_spec.h"

#include "tensor/base/check.h"

namespace elinvar {
namespace {

bool is_list(const toml::node& node) {
  const toml::array* array = node.as_array();
  return array != nullptr && !array->empty() && array->is_homogeneous(toml::node_type::table);
}

Value value_of(const TomlSource& source, const std::string& key, const toml::node& node) {
  if (node.is_boolean()) return **node.as_boolean();
  if (node.is_integer()) return **node.as_integer();
  if (node.is_floating_point()) return **node.as_floating_point();
  if (node.is_string()) return **node.as_string();
  std::vector<int64_t> values;
  const toml::array* array = node.as_array();
  check(array != nullptr, "{}: {} must be a number, text, true or false, an array of integers, or an array of tables",
        source.where(key, node), key);
  for (const toml::node& element : *array) {
    check(element.is_integer(), "{}: {} must be an array of integers or of tables", source.where(key, node), key);
    values.push_back(**element.as_integer());
  }
  return values;
}

ModelSpec spec_of(const TomlSource& source, const std::string& path, const toml::table& table) {
  ModelSpec spec;
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

std::string inline_table(const ModelSpec& spec) {
  std::string text;
  const auto add = [&](const std::string& key, const std::string& value) {
    text += (text.empty() ? "" : ", ") + key + " = " + value;
  };
  if (!spec.kind.empty()) add("kind", TableWriter::text(spec.kind));
  for (const auto& [key, setting] : spec.settings) add(key, text_of(setting));
  for (const auto& [key, list] : spec.lists) {
    std::string elements;
    for (const ModelSpec& element : list) elements += (elements.empty() ? "" : ", ") + inline_table(element);
    add(key, "[" + elements + "]");
  }
  return "{" + text + "}";
}

}  // namespace

ModelSpec read_model_spec(const TomlSource& source) {
  check(source.root().contains("model"), "{}: a [model] table is missing: which network is to be trained?",
        source.places()("model"));
  ModelSpec spec = spec_of(source, "model", source.table("model"));
  if (spec.kind.empty() && spec.lists.contains("layer")) spec.kind = "layers";
  return spec;
}

std::string model_spec_to_toml(const ModelSpec& spec) {
  std::string text = "[model]\nkind = " + TableWriter::text(spec.kind) + "\n";
  for (const auto& [key, setting] : spec.settings) text += key + " = " + text_of(setting) + "\n";
  for (const auto& [key, list] : spec.lists) {
    text += key + " = [\n";
    for (const ModelSpec& element : list) text += "  " + inline_table(element) + ",\n";
    text += "]\n";
  }
  return text;
}

}  // namespace elinvar
