#include "tools/bench/job_files.h"

#include <fstream>

namespace elinvar::bench {

void write_text(const std::string& path, int64_t symbols, int64_t length) {
  std::ofstream file(path);
  for (int64_t i = 0; i < length; ++i) {
    const auto code = static_cast<uint32_t>(0x20000 + i * 7919 % symbols);
    for (const uint32_t byte :
         {0xf0 | code >> 18, 0x80 | (code >> 12 & 63), 0x80 | (code >> 6 & 63), 0x80 | (code & 63)})
      file.put(static_cast<char>(byte));
  }
}

}  // namespace elinvar::bench
