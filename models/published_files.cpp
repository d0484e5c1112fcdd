// Reads the files of published weights: one .safetensors file, or the index of several (models/published.h).
#include <nlohmann/json.hpp>
#include <set>

#include "models/published.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/safetensors.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

StateDict read_index(const fs::path& path) {
  const Json map = read_json_object(path).value("weight_map", Json());
  if (!map.is_object()) fail("{}: expected a JSON object with a \"weight_map\"", path.string());
  std::map<std::string, std::set<std::string>> names;
  for (const auto& [name, file] : map.items()) {
    if (!file.is_string()) fail("{}: expected the name of a file for '{}'", path.string(), name);
    const std::string text = file.get<std::string>();
    // An untrusted index must not reach other folders.
    if (fs::path(text).filename() != text) fail("{}: '{}' is no file beside it", path.string(), text);
    names[text].insert(name);
  }
  StateDict all;
  for (const auto& [file, wanted] : names) {
    StateDict part = read_safetensors(path.parent_path() / file).tensors;
    for (const std::string& name : wanted) {
      const auto found = part.find(name);
      if (found == part.end()) fail("{}: '{}' is not in {}", path.string(), name, file);
      all.emplace(name, found->second);
    }
  }
  return all;
}

// Returns the class that the config.json of a folder names.
std::string class_in(const fs::path& folder) {
  std::error_code unknown;
  if (!fs::exists(folder / "config.json", unknown)) return "AutoModelForCausalLM";
  const Json names = read_json_object(folder / "config.json").value("architectures", Json::array());
  const bool one = names.is_array() && names.size() == 1 && names[0].is_string();
  return one ? names[0].get<std::string>() : "AutoModelForCausalLM";
}

fs::path file_of(const fs::path& path) {
  std::error_code unknown;
  if (!fs::is_directory(path, unknown)) return path;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (fs::exists(path / name)) return path / name;
  for (const fs::path& file : paths_in(path)) {
    const std::string name = file.filename().string();
    if (!name.ends_with(".bin") && !name.ends_with(".bin.index.json") && !name.ends_with(".pth")) continue;
    fail(
        "{0} has weights of torch.save ({1}), which are not read, and no model.safetensors; convert them in Python: "
        "transformers.{2}.from_pretrained('{0}').save_pretrained('{0}-safe')",
        path.string(), name, class_in(path));
  }
  fail("{} has neither model.safetensors nor model.safetensors.index.json", path.string());
}

}  // namespace

StateDict read_published(const fs::path& given) {
  const fs::path path = file_of(given);
  StateDict weights = path.extension() == ".json" ? read_index(path) : read_safetensors(path).tensors;
  for (auto& [name, tensor] : weights)
    if (is_floating(tensor.dtype())) tensor = tensor.to(DType::f32);
  return weights;
}

}  // namespace elinvar
