#pragma once
// Unicode's normal form C (UAX 15), in which a letter and its accent are one code point if there is one for both. The
// form of an assigned code point never changes. Code points are those that the installed utf8proc knows, Unicode 15.0
// in Debian 12. Hugging Face's tokenizers (tried: 0.23) know Unicode 9 and do not order marks added later.
#include <string>
#include <string_view>

namespace elinvar {

// Converts UTF-8; bytes that are not UTF-8 stay as they are.
std::string nfc(std::string_view text);

}  // namespace elinvar
