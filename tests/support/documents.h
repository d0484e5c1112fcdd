#pragma once
// Parses the project's Markdown files, for tests that compare them with the code and run their commands.
#include <string>
#include <vector>

namespace elinvar::test {

// A fenced block: ```language.
struct DocumentBlock {
  std::string language;
  std::string before;              // the last line of text above it
  std::vector<std::string> lines;  // without the fences
};

struct Document {
  std::string path;                // relative to the root: "tools/docs/elasticity.md"
  std::string folder;              // the file's folder relative to the root; "" for README.md
  std::vector<std::string> prose;  // the lines, with those of fenced blocks replaced by ""
  std::vector<DocumentBlock> blocks;
};

// Returns README.md and every .md file below the folders of the project, in path order.
const std::vector<Document>& documents();

const Document& document(const std::string& path);

}  // namespace elinvar::test
