#include "comm/received_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace elinvar {
namespace {

// Returns the number of bytes of the control character at this place, or 0 if there is another character. UTF-8 encodes
// U+0080 to U+009F as C2 80 to C2 9F.
size_t control_bytes(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const unsigned now = byte(at);
  if (now == 0xc2 && byte(at + 1) >= 0x80 && byte(at + 1) < 0xa0) return 2;
  if (now == '\t' || now == '\n' || (now == '\r' && byte(at + 1) == '\n')) return 0;
  return now < 0x20 || now == 0x7f ? 1 : 0;
}

}  // namespace

std::string received_text(std::string text) {
  std::string shown;
  size_t copied = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t bytes = control_bytes(text, at);
    if (bytes == 0) continue;
    shown.append(text, copied, at - copied);
    shown += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[at + bytes - 1]));
    copied = at + bytes;
    at = copied - 1;
  }
  if (copied == 0) return text;
  return shown.append(text, copied);
}

nlohmann::json received_text(nlohmann::json json) {
  if (json.is_string()) return received_text(std::move(json.get_ref<std::string&>()));
  if (json.is_array())
    for (nlohmann::json& element : json) element = received_text(std::move(element));
  if (!json.is_object()) return json;
  nlohmann::json object = nlohmann::json::object();
  for (auto& [key, value] : json.items()) object[received_text(key)] = received_text(std::move(value));
  return object;
}

}  // namespace elinvar
