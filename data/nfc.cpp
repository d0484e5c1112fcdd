#include "data/nfc.h"

#include <utf8proc.h>

#include <vector>

#include "data/utf8.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// Appends the normal form of a stretch of code points.
void append_form(std::string_view stretch, std::vector<int32_t>& points, std::string& to) {
  constexpr auto kForm = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto decompose = [&] {
    return utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(stretch.data()),
                              static_cast<utf8proc_ssize_t>(stretch.size()), points.data(),
                              static_cast<utf8proc_ssize_t>(points.size()), kForm);
  };
  utf8proc_ssize_t count = decompose();
  if (count > static_cast<utf8proc_ssize_t>(points.size())) {
    points.resize(static_cast<size_t>(count));
    count = decompose();
  }
  if (count >= 0) count = utf8proc_normalize_utf32(points.data(), count, kForm);
  if (count < 0) fail("[text] cannot bring {} bytes to normal form C: {}", stretch.size(), utf8proc_errmsg(count));
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(to, static_cast<char32_t>(points[static_cast<size_t>(i)]));
}

}  // namespace

std::string nfc(std::string_view text) {
  std::string form;
  form.reserve(text.size());
  std::vector<int32_t> points(64);
  for (size_t at = 0; at < text.size();) {
    // An ASCII character is in normal form and joins nothing before it, so a stretch begins there and goes on with
    // other characters.
    size_t end = at;
    while (end < text.size()) {
      const CodePoint c = code_point(text, end);
      if (!c.good || (end > at && is_ascii(text[end]))) break;
      end += c.bytes;
    }
    if (end == at) form += text[end++];  // not UTF-8
    else if (end == at + 1) form += text[at];
    else append_form(text.substr(at, end - at), points, form);
    at = end;
  }
  return form;
}

}  // namespace elinvar
