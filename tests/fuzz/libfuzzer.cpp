// libFuzzer's side of the targets: `fuzz --target=NAME [libFuzzer's options] FOLDER..` (tools/fuzz).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/target.h"

namespace {

const elinvar::test::FuzzTarget* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr const char* kOption = "--target=";
  for (int i = 1; i < *argc; ++i)
    for (const elinvar::test::FuzzTarget& target : elinvar::test::fuzz_targets())
      if (std::string((*argv)[i]) == kOption + std::string(target.name())) chosen = &target;
  if (chosen != nullptr) return 0;
  for (const elinvar::test::FuzzTarget& target : elinvar::test::fuzz_targets()) std::printf("%s\n", target.name());
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  chosen->run({reinterpret_cast<const char*>(bytes), count});
  return 0;
}
