#pragma once
// The pages of files that this process has in memory: code and constants. A child that it starts by fork() begins
// without them and gets each when it reads it, so the growth of the child's memory would count them again.
#include <cstddef>
#include <vector>

namespace elinvar {

class FilePages {
 public:
  FilePages();  // those of this process; none if the system does not say
  size_t count() const { return pages_.size(); }
  // Reads a byte of each page. Call it in a child, while the files are mapped as they were.
  void touch() const;

 private:
  std::vector<const volatile char*> pages_;
};

}  // namespace elinvar
