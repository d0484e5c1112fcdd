#include "tensor/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace elinvar {

void invariant_failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, what);
  std::abort();
}

}  // namespace elinvar
