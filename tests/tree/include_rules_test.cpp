// Compares the layer diagram of README.md with includes and link edges.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tensor/base/file.h"
#include "tests/places.h"
#include "tests/support/lines.h"
#include "tests/support/source_tree.h"

namespace elinvar::test {
namespace {

using Edges = std::map<std::string, std::set<std::string>>;

std::vector<std::string> lines_of_document(const std::string& name) {
  return lines_of(read_file(std::string(ELINVAR_SOURCE_DIR) + "/" + name));
}

// Returns the arrows of the diagram: chains "a ──► b ──► c", and branches "├──► d" of the first folder above them.
const Edges& arrows() {
  static const Edges edges = [] {
    Edges read;
    std::string trunk;
    const std::regex name("[a-z]+|►");
    for (const std::string& line : lines_of_document("README.md")) {
      if (line.rfind("    ", 0) != 0 || line.find("►") == std::string::npos) continue;
      std::string from;
      for (auto at = std::sregex_iterator(line.begin(), line.end(), name); at != std::sregex_iterator(); ++at) {
        std::string to = at->str();
        if (to == "►") {
          if (from.empty()) from = trunk;
          continue;
        }
        if (to == "everything") to = trunk;  // from there the arrows reach every other folder
        if (from.empty() && trunk.empty()) trunk = to;
        if (!from.empty()) read[from].insert(to);
        read[to];
        from = to;
      }
    }
    return read;
  }();
  return edges;
}

// Returns the folders that a folder may use: itself and all that the arrows reach.
std::set<std::string> reachable(const std::string& folder) {
  std::set<std::string> seen{folder};
  for (const std::string& next : arrows().at(folder)) seen.merge(reachable(next));
  return seen;
}

// Returns the folders that each folder includes.
Edges includes() {
  Edges edges;
  for (const SourceFile& file : source_tree())
    for (const std::string& line : file.lines) {
      std::string path = included(line);
      if (path.starts_with("elinvar/")) path = path.substr(path.find('/') + 1);  // as other projects include it
      const std::string folder = path.substr(0, path.find('/'));
      if (path.find('/') != std::string::npos && arrows().count(folder)) edges[file.folder].insert(folder);
    }
  return edges;
}

// Returns the folders with which each library is linked, written at configure time from the targets themselves.
Edges links() {
  Edges edges;
  std::ifstream in(ELINVAR_LINKS_FILE);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string folder, used;
    words >> folder;
    edges[folder];
    while (words >> used) edges[folder].insert(used);
  }
  return edges;
}

TEST(IncludeRules, IncludesFollowTheArrows) {
  for (const auto& [folder, used] : includes())
    for (const std::string& other : used)
      EXPECT_TRUE(reachable(folder).count(other)) << folder << " must not include " << other;
}

TEST(IncludeRules, LinksFollowTheArrows) {
  const Edges edges = links();
  for (const char* folder : {"tensor", "autograd", "nn", "data", "comm", "elastic", "models"})
    EXPECT_TRUE(edges.count(folder)) << "no library for " << folder;
  for (const auto& [folder, used] : edges)
    for (const std::string& other : used)
      EXPECT_TRUE(reachable(folder).count(other)) << folder << " must not be linked with " << other;
}

TEST(IncludeRules, WhatIsIncludedIsLinked) {
  const Edges linked = links();
  for (const auto& [folder, used] : includes()) {
    if (!linked.count(folder)) continue;  // tools, examples and tests are programs
    for (const std::string& other : used)
      EXPECT_TRUE(other == folder || linked.at(folder).count(other))
          << folder << " includes " << other << " but does not link it";
  }
}

// Returns the folders within a folder, lowest first, from lines "    elastic: step ledger .." of the code tour.
std::map<std::string, std::vector<std::string>> layers_within() {
  std::map<std::string, std::vector<std::string>> layers;
  const std::regex listed("^    ([a-z/]+):( [a-z]+)+$");
  std::smatch match;
  for (const std::string& line : lines_of_document("tools/docs/code-tour.md"))
    if (std::regex_match(line, match, listed)) {
      std::istringstream words(line.substr(line.find(':') + 1));
      for (std::string word; words >> word;) layers[match[1]].push_back(word);
    }
  return layers;
}

// Returns the folder within `folder` that holds the path: "protocol" for "elastic/protocol/member.h" and "elastic"; ""
// if the path is a file of `folder` itself or lies elsewhere.
std::string folder_within(const std::string& folder, const std::string& path) {
  if (!path.starts_with(folder + "/")) return "";
  const size_t begin = folder.size() + 1, end = path.find('/', begin);
  return end == std::string::npos ? "" : path.substr(begin, end - begin);
}

TEST(IncludeRules, FoldersWithinFoldersAreLayers) {
  const auto layers = layers_within();
  for (const char* folder : {"elastic", "tools", "tools/pool"}) ASSERT_TRUE(layers.count(folder)) << folder;
  for (const auto& [folder, order] : layers) {
    const auto level = [&](const std::string& name) { return std::find(order.begin(), order.end(), name); };
    std::set<std::string> present;
    for (const SourceFile& file : source_tree()) {
      if (!file.path.starts_with(folder + "/") || file.path == folder + "/main.cpp") continue;
      const std::string own = folder_within(folder, file.path);
      present.insert(own);
      EXPECT_NE(level(own), order.end()) << file.path << " lies in no folder that the code tour names";
      for (const std::string& line : file.lines) {
        const std::string path = included(line), other = folder_within(folder, path);
        if (!path.starts_with(folder + "/")) continue;
        EXPECT_LE(level(other) - order.begin(), level(own) - order.begin())
            << file.path << " must not include " << path;
      }
    }
    EXPECT_EQ(std::set<std::string>(order.begin(), order.end()), present);
  }
}

// The library with which other programs train is independent of command lines and of the commands that use it.
TEST(IncludeRules, TheTrainingLibraryKnowsNoCommands) {
  const std::regex command(
      "^(CLI/.*|tools/(launch|train|repro|pool|bench|tokenize)/.*|tools/cli/"
      "(device_options|number_from|subcommands)\\.h)$");
  for (const SourceFile& file : source_tree()) {
    if (!file.path.starts_with("tools/training/") && !file.path.starts_with("tools/config/")) continue;
    for (const std::string& line : file.lines)
      EXPECT_FALSE(std::regex_match(included(line), command)) << file.path << " includes " << included(line);
  }
}

TEST(IncludeRules, EveryFolderIsInTheDiagramAndInTheTable) {
  std::set<std::string> drawn, listed, present;
  for (const auto& [folder, used] : arrows()) drawn.insert(folder);
  for (const SourceFile& file : source_tree()) present.insert(file.folder);
  std::smatch match;
  for (const std::string& line : lines_of_document("README.md"))
    if (std::regex_search(line, match, std::regex("^\\| `([a-z]+)/`"))) listed.insert(match[1]);
  EXPECT_EQ(drawn, present);
  EXPECT_EQ(listed, present);
  EXPECT_EQ(reachable("tests"), present);
}

}  // namespace
}  // namespace elinvar::test
