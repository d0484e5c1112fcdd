#pragma once
// Unicode's normal form C (UAX 15), in which a letter and its accent are one code point where there is one for both.
// The form of code points, once assigned, never changes; this is what the utf8proc at hand knows of them, in Debian 12
// Unicode 15.0. Hugging Face's tokenizers (tried: 0.23) know Unicode 9, and put marks that came later into no order.
#include <string>
#include <string_view>

namespace elinvar {

// Of UTF-8. Bytes that are none stay as they are.
std::string nfc(std::string_view text);

}  // namespace elinvar
