#include "tests/fuzz/target.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

std::vector<FuzzTarget>& registered() {
  static std::vector<FuzzTarget> targets;
  return targets;
}

}  // namespace

FuzzTarget::FuzzTarget(const char* name, Read read) : name_(name), read_(read) { registered().push_back(*this); }

void FuzzTarget::run(std::string_view bytes) const {
  try {
    read_(bytes);
  } catch (const UsageError&) {
  } catch (const Failure&) {
  }
}

const std::vector<FuzzTarget>& fuzz_targets() { return registered(); }

std::filesystem::path fuzz_file(const std::string& name, std::string_view bytes) {
  static const TemporaryFolder folder;
  return folder.write(name, bytes);
}

std::string_view next_part(std::string_view& bytes) {
  const size_t end = bytes.find('\0');
  const std::string_view part = bytes.substr(0, end);
  bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  return part;
}

void must(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

}  // namespace elinvar::test
