#include "tensor/base/json.h"

#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {

bool nested_deeper(std::string_view text, int most) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

nlohmann::json read_json_object(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  nlohmann::json json = parse_json(text);
  if (!json.is_object()) fail("{} is {}", path.string(), text.empty() ? "empty" : "no JSON object");
  return json;
}

}  // namespace elinvar
