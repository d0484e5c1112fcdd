#include "tensor/base/reason.h"

#include <cstring>
#include <new>

namespace elinvar {

const char* reason_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) {
    const char* what = error.what();
    const char* end = std::strncmp(what, "[json.exception.", 16) == 0 ? std::strstr(what, "] ") : nullptr;
    return end == nullptr ? what : end + 2;
  }
  return "out of memory: the machine has no more, or this process may not have it (ulimit -v, a container's limit)";
}

}  // namespace elinvar
