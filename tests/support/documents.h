#pragma once
// The project's Markdown files, taken apart for tests that hold them to the code and run what they show.
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
  std::string path;                // from the root: "tools/docs/elasticity.md"
  std::string folder;              // of the file, from the root; "" of README.md itself
  std::vector<std::string> prose;  // the lines outside of fenced blocks; of a line in a block, ""
  std::vector<DocumentBlock> blocks;
};

// README.md and every .md file below the folders of the project, in path order.
const std::vector<Document>& documents();

const Document& document(const std::string& path);

}  // namespace elinvar::test
