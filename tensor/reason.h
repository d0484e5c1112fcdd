#pragma once
// Why something failed, for people.
#include <exception>

namespace elinvar {

// What the exception says: without the number that nlohmann::json puts before it, and where it is the library's
// std::bad_alloc, what that means. Allocates nothing; there as long as the exception is.
const char* reason_of(const std::exception& error);

}  // namespace elinvar
