#pragma once
// Why something failed, for people.
#include <exception>

namespace elinvar {

// Returns the message of an exception, without the error number that nlohmann::json puts first; for std::bad_alloc, an
// explanation. Does not allocate. The text lives as long as the exception.
const char* reason_of(const std::exception& error);

}  // namespace elinvar
