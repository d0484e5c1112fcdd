// Files of tokens.
#include <algorithm>

#include "data/token_file.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

const FuzzTarget kTokenFile("token_file", [](std::string_view bytes) {
  const TokenFile file(fuzz_file("tokens.bin", bytes));
  std::vector<int32_t> tokens(static_cast<size_t>(file.size()));
  file.read(0, file.size(), tokens.data());
  must(static_cast<size_t>(file.size()) * static_cast<size_t>(file.bytes()) <= bytes.size(), "tokens lie in the file");
});

}  // namespace
}  // namespace elinvar::test
