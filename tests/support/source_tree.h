#pragma once
// Lists the project's own sources, for tests that read them.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace elinvar::test {

struct SourceFile {
  std::string path;    // relative to the root: "tensor/ops/softmax.cpp"
  std::string folder;  // its first part: "tensor"
  std::vector<std::string> lines;
};

// Returns every .h, .cpp and .cu file below the folders of the project, in path order.
const std::vector<SourceFile>& source_tree();

// Returns the path between the quotes or angle brackets of an #include line, else "".
std::string included(const std::string& line);

// Calls visit(file, line number, code) for each line of the files that `wanted` chooses; `code` is without its
// comment.
void each_line(const std::function<bool(const SourceFile&)>& wanted,
               const std::function<void(const SourceFile&, size_t, const std::string&)>& visit);

}  // namespace elinvar::test
