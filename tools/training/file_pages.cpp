#include "tools/training/file_pages.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace elinvar {

// /proc/self/maps has a line for each range, "BEGIN-END rwxp OFFSET DEVICE INODE PATH", and /proc/self/pagemap eight
// bytes for each page, the highest bit of which says that the page is in memory (Linux, Documentation/admin-guide/mm).
FilePages::FilePages() {
  const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  std::ifstream maps("/proc/self/maps");
  const int pagemap = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);  // reads are of whole entries, unbuffered
  if (pagemap < 0) return;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string access, offset, device, inode, path;
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    words >> std::hex >> begin >> dash >> end >> access >> offset >> device >> inode >> path;
    if (!path.starts_with('/') || !access.starts_with('r')) continue;
    std::vector<uint64_t> entries((end - begin) / size, 0);
    const ssize_t read = ::pread(pagemap, entries.data(), entries.size() * sizeof(uint64_t),
                                 static_cast<off_t>(begin / size * sizeof(uint64_t)));
    entries.resize(read > 0 ? static_cast<size_t>(read) / sizeof(uint64_t) : 0);
    for (size_t i = 0; i < entries.size(); ++i)
      if (entries[i] >> 63 != 0) pages_.push_back(reinterpret_cast<const volatile char*>(begin + i * size));
  }
  ::close(pagemap);
}

void FilePages::touch() const {
  for (const volatile char* const page : pages_) static_cast<void>(*page);
}

}  // namespace elinvar
