#include "tests/support/source_tree.h"
#include "tests/places.h"

#include <algorithm>
#include <fstream>
#include <regex>

namespace elinvar::test {

namespace fs = std::filesystem;

const std::vector<SourceFile>& source_tree() {
  static const std::vector<SourceFile> files = [] {
    std::vector<SourceFile> found;
    const fs::path root = ELINVAR_SOURCE_DIR;
    for (const char* folder :
         {"tensor", "autograd", "nn", "data", "comm", "elastic", "models", "tools", "examples", "tests"}) {
      for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
        const std::string extension = entry.path().extension().string();
        if (extension != ".h" && extension != ".inc" && extension != ".cpp" && extension != ".cu") continue;
        SourceFile file{fs::relative(entry.path(), root).generic_string(), folder, {}};
        std::ifstream in(entry.path());
        for (std::string line; std::getline(in, line);) file.lines.push_back(line);
        found.push_back(std::move(file));
      }
    }
    std::sort(found.begin(), found.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
    return found;
  }();
  return files;
}

std::string included(const std::string& line) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*["<]([^">]+)[">].*)re");
  std::smatch match;
  return std::regex_match(line, match, pattern) ? match[1].str() : "";
}

void each_line(const std::function<bool(const SourceFile&)>& wanted,
               const std::function<void(const SourceFile&, size_t, const std::string&)>& visit) {
  for (const SourceFile& file : source_tree()) {
    if (!wanted(file)) continue;
    for (size_t i = 0; i < file.lines.size(); ++i)
      visit(file, i + 1, file.lines[i].substr(0, file.lines[i].find("//")));
  }
}

}  // namespace elinvar::test
