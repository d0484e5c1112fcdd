#pragma once
// Texts from other processes: names, reasons, versions, paths. They end in terminals and logs, where control characters
// would move the cursor or change what was printed before.
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace elinvar {

// Returns the text with every control character, except tabs and the ends of lines (LF or CRLF), written as its code:
// "\u001b" for an escape, as in TOML and JSON.
std::string received_text(std::string text);
// The same for all strings and keys in a JSON value.
nlohmann::json received_text(nlohmann::json json);

}  // namespace elinvar
