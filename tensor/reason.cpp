#include "tensor/reason.h"

#include <new>

namespace elinvar {

const char* reason_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) return error.what();
  return "out of memory: the machine has no more, or this process may not have it (ulimit -v, a container's limit)";
}

}  // namespace elinvar
