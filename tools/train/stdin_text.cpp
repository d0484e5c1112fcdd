#include "tools/train/stdin_text.h"

#include <unistd.h>

#include <iostream>
#include <iterator>

#include "tensor/base/check.h"

namespace elinvar {

std::string without_last_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string text_on_stdin(const char* expected) {
  check(isatty(STDIN_FILENO) == 0, "{}", expected);
  return without_last_newline({std::istreambuf_iterator<char>(std::cin), {}});
}

}  // namespace elinvar
