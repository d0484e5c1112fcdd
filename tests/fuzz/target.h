#pragma once
// Readers of bytes from outside, as called by fuzzing. For any bytes a reader returns, or throws UsageError or Failure.
// Anything else is a defect: a crash, another exception, a hang, a leak, memory out of proportion.
//
// A file NAME_fuzzer.cpp has a target, and corpus/NAME/ has initial inputs. tests/fuzz/fuzz_test.cpp runs all targets
// on these and on mutations of them, each within limits (limits.h); tools/fuzz lets libFuzzer search for more
// (libfuzzer.cpp).
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar::test {

class FuzzTarget {
 public:
  using Read = void (*)(std::string_view bytes);
  FuzzTarget(const char* name, Read read);  // for a static object: adds it to the list
  const char* name() const { return name_; }
  void run(std::string_view bytes) const;

 private:
  const char* name_;
  Read read_;
};
const std::vector<FuzzTarget>& fuzz_targets();

// Makes a file with these bytes, for readers of files, in a folder of this process that is removed at its end. `name`
// may contain folders.
std::filesystem::path fuzz_file(const std::string& name, std::string_view bytes);

// Returns the bytes before the first '\0', or all if there is none, and removes them and the '\0' from `bytes`. One
// input can thus consist of several files.
std::string_view next_part(std::string_view& bytes);

// Ends the process unless `ok`, a property of a reader, holds.
void must(bool ok, const char* what);

}  // namespace elinvar::test
