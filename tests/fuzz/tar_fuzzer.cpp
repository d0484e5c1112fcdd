// Archives, read in place.
#include "data/tar.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

const FuzzTarget kTar("tar", [](std::string_view bytes) {
  const auto files = open_tar(fuzz_file("set.tar", bytes).string());
  for (size_t i = 0; i < files->entries().size(); ++i) {
    const FileSet::Entry& entry = files->entries()[i];
    must(static_cast<int64_t>(files->read(i).size()) == entry.size, "a member has its size");
    must(files->contains(entry.path), "a member is found by its name");
  }
});

}  // namespace
}  // namespace elinvar::test
