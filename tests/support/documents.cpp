#include "tests/support/documents.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tensor/base/check.h"
#include "tests/places.h"

namespace elinvar::test {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFence = "```";

Document parse(const fs::path& root, const fs::path& path) {
  Document document;
  const fs::path relative = fs::relative(path, root);
  document.path = relative.generic_string();
  document.folder = relative.parent_path().generic_string();
  std::ifstream in(path);
  bool inside = false;
  std::string last;
  for (std::string line; std::getline(in, line);) {
    const size_t indent = line.find_first_not_of(' ');
    const bool fence = indent != std::string::npos && line.compare(indent, 3, kFence) == 0;
    if (fence && !inside) document.blocks.push_back({line.substr(indent + 3), last, {}});
    if (!fence && inside) document.blocks.back().lines.push_back(line);
    const bool text = !fence && !inside;
    document.prose.push_back(text ? line : "");
    if (text && indent != std::string::npos) last = line;
    if (fence) inside = !inside;
  }
  return document;
}

}  // namespace

const std::vector<Document>& documents() {
  static const std::vector<Document> found = [] {
    const fs::path root = ELINVAR_SOURCE_DIR;
    std::vector<Document> all{parse(root, root / "README.md")};
    for (const char* folder :
         {"tensor", "autograd", "nn", "data", "comm", "elastic", "models", "tools", "tests", "examples"}) {
      if (!fs::exists(root / folder)) continue;
      for (const auto& entry : fs::recursive_directory_iterator(root / folder))
        if (entry.path().extension() == ".md") all.push_back(parse(root, entry.path()));
    }
    std::sort(all.begin(), all.end(), [](const Document& a, const Document& b) { return a.path < b.path; });
    return all;
  }();
  return found;
}

const Document& document(const std::string& path) {
  const auto found = std::find_if(documents().begin(), documents().end(),
                                  [&](const Document& document) { return document.path == path; });
  if (found == documents().end()) fail("there is no document {}", path);
  return *found;
}

}  // namespace elinvar::test
