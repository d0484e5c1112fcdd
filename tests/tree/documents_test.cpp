// Checks the documents' statements about the tree: links, paths, headers, constants, excerpts of code, and the
// programs' messages. tests/jobs/documents_test.cpp runs their commands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "tensor/numerics.h"
#include "tests/places.h"
#include "tests/support/documents.h"
#include "tests/support/source_tree.h"

namespace elinvar::test {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = ELINVAR_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Returns the name of a heading in links: lower case, blanks as hyphens, without punctuation.
std::string anchor_of(const std::string& heading) {
  std::string name;
  for (const char c : heading.substr(heading.find_first_not_of("# "))) {
    if (c == ' ' || c == '-') name += '-';
    else if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') name += static_cast<char>(std::tolower(c));
  }
  return name;
}

std::set<std::string> anchors(const std::string& path) {
  std::set<std::string> names;
  for (const std::string& line : document(path).prose)
    if (line.starts_with("#")) names.insert(anchor_of(line));
  return names;
}

const std::regex kLink(R"(\]\(([^)#:]*)(#([^)]*))?\))");  // (path#anchor) within this tree

TEST(Documents, LinksLeadSomewhere) {
  for (const Document& from : documents())
    for (const std::string& line : from.prose)
      for (auto at = std::sregex_iterator(line.begin(), line.end(), kLink); at != std::sregex_iterator(); ++at) {
        const std::string file = (*at)[1], anchor = (*at)[3];
        const fs::path target = file.empty() ? kRoot / from.path : kRoot / from.folder / file;
        EXPECT_TRUE(fs::exists(target)) << from.path << " links to " << file;
        if (!anchor.empty() && fs::exists(target)) {
          EXPECT_TRUE(anchors(fs::relative(fs::canonical(target), fs::canonical(kRoot)).generic_string()).count(anchor))
              << from.path << " links to " << file << "#" << anchor;
        }
      }
}

TEST(Documents, EachIsLinkedFromAnother) {
  std::set<std::string> linked{"README.md"};
  for (const Document& from : documents())
    for (const std::string& line : from.prose)
      for (auto at = std::sregex_iterator(line.begin(), line.end(), kLink); at != std::sregex_iterator(); ++at)
        if (const fs::path target = (fs::path(from.folder) / (*at)[1].str()).lexically_normal(); target != from.path)
          linked.insert(target.generic_string());
  for (const Document& each : documents()) EXPECT_TRUE(linked.count(each.path)) << "nothing links to " << each.path;
}

// Paths of the tree: those that begin with a folder of the project, and in backticks also those relative to the
// document.
TEST(Documents, PathsThatAreNamedExist) {
  const std::regex from_root(
      R"((^|[^\w/.-])((tensor|autograd|nn|data|comm|elastic|models|tools|tests|cmake|examples)/[\w./-]*\w))");
  const std::regex ticked("`([\\w./-]+/[\\w./-]*)`");
  for (const Document& from : documents())
    for (const std::string& line : from.prose) {
      for (auto at = std::sregex_iterator(line.begin(), line.end(), from_root); at != std::sregex_iterator(); ++at)
        EXPECT_TRUE(fs::exists(kRoot / (*at)[2].str()) || fs::exists(kRoot / from.folder / (*at)[2].str()))
            << from.path << " names " << (*at)[2];
      for (auto at = std::sregex_iterator(line.begin(), line.end(), ticked); at != std::sregex_iterator(); ++at) {
        const std::string path = (*at)[1], first = path.substr(0, path.find('/'));
        if (!from.folder.empty() && fs::exists(kRoot / from.folder / first)) {
          EXPECT_TRUE(fs::exists(kRoot / from.folder / path) || fs::exists(kRoot / path))
              << from.path << " names " << path;
        }
      }
    }
}

std::string without_indent(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  return begin == std::string::npos ? "" : line.substr(begin);
}

// A block of C++ below a line with a link to a source file is an excerpt of that file.
TEST(Documents, ExcerptsOfCodeAreInTheCode) {
  const std::regex link(R"(\]\(([^)#:]+\.(h|cpp|cu))\))");
  int found = 0;
  for (const Document& from : documents())
    for (const DocumentBlock& block : from.blocks) {
      std::smatch match;
      if (block.language != "cpp" || !std::regex_search(block.before, match, link)) continue;
      std::string source = "\n", excerpt = "\n";
      std::ifstream in(kRoot / from.folder / match[1].str());
      for (std::string line; std::getline(in, line);) source += without_indent(line) + "\n";
      for (const std::string& line : block.lines) excerpt += without_indent(line) + "\n";
      EXPECT_NE(source.find(excerpt), std::string::npos) << from.path << " shows what is not in " << match[1];
      ++found;
    }
  EXPECT_GT(found, 0);
}

// Each message in troubleshooting.md (a table's first cell in backticks) is in the code; ".." matches the variable
// parts.
TEST(Documents, MessagesAreThoseOfThePrograms) {
  std::string code;
  for (const SourceFile& file : source_tree())
    if (file.folder != "tests")
      for (const std::string& line : file.lines) code += without_indent(line) + "\n";
  code = std::regex_replace(code, std::regex("\"\n\""), "");  // joins string literals that are split over lines
  code = std::regex_replace(code, std::regex(R"(\\")"), "\"");
  const std::regex row("^\\| `([^`]+)` \\|");
  int found = 0;
  for (const std::string& line : document("tools/docs/troubleshooting.md").prose) {
    std::smatch match;
    if (!std::regex_search(line, match, row)) continue;
    ++found;
    const std::string message = match[1];
    for (size_t at = 0; at < message.size();) {
      const size_t end = std::min(message.find("..", at), message.size());
      const std::string part = message.substr(at, end - at);
      EXPECT_NE(code.find(part), std::string::npos) << "no program says '" << part << "' of: " << message;
      at = end + 2;
    }
  }
  EXPECT_GT(found, 20);
}

TEST(Documents, TheTableOfTensorNamesEveryHeader) {
  const std::string text = text_of(kRoot / "tensor/README.md");
  for (const SourceFile& file : source_tree()) {
    const std::string name = fs::path(file.path).filename();
    if (file.path != "tensor/" + name || !name.ends_with(".h")) continue;
    EXPECT_NE(text.find("`" + name + "`"), std::string::npos) << "tensor/README.md lacks " << name;
  }
}

TEST(Documents, NumericsGivesTheConstantsOfTheCode) {
  const std::string text = text_of(kRoot / "tensor/NUMERICS.md");
  const std::map<std::string, int64_t> constants = {{"kChunk", kChunk},           {"kGroup", kGroup},
                                                    {"kRowLanes", kRowLanes},     {"kRowSegment", kRowSegment},
                                                    {"kColumnLeaf", kColumnLeaf}, {"kMostShards", kMostShards}};
  for (const auto& [name, value] : constants)
    EXPECT_NE(text.find("`" + name + "` (" + std::to_string(value) + ")"), std::string::npos)
        << name << " is " << value;
  EXPECT_EQ(text.rfind("# Canonical numerics, version " + std::to_string(kNumericsVersion) + "\n", 0), 0u);
}

}  // namespace
}  // namespace elinvar::test
