#pragma once
// Readers of bytes from outside, as fuzzing calls them: given any bytes a reader returns, or throws UsageError or
// Failure. Whatever else happens, a crash, another exception, a hang, a leak, memory out of all proportion, is a
// defect.
//
// A file NAME_fuzzer.cpp has a target, and corpus/NAME/ some inputs to begin with. tests/fuzz/fuzz_test.cpp runs all of
// them over these and mutations of them, each within limits (limits.h); tools/fuzz lets libFuzzer look for more
// (libfuzzer.cpp).
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar::test {

class FuzzTarget {
 public:
  using Read = void (*)(std::string_view bytes);
  FuzzTarget(const char* name, Read read);  // of a static object: it is in the list from then on
  const char* name() const { return name_; }
  void run(std::string_view bytes) const;

 private:
  const char* name_;
  Read read_;
};
const std::vector<FuzzTarget>& fuzz_targets();

// A file with these bytes, for readers of files: in a folder of this process that goes when it ends, below which `name`
// may name others.
std::filesystem::path fuzz_file(const std::string& name, std::string_view bytes);

// What stands before the first '\0', which is taken off with it; everything, if there is none. So one input can be
// several files.
std::string_view next_part(std::string_view& bytes);

// Ends the process unless `ok`: a property of a reader does not hold.
void must(bool ok, const char* what);

}  // namespace elinvar::test
