// The layer diagram of README.md, as includes and as link edges.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/source_tree.h"

namespace elinvar::test {
namespace {

using Edges = std::map<std::string, std::set<std::string>>;

const Edges kArrows = {
    {"tools", {"models", "data", "elastic"}},
    {"models", {"nn"}},
    {"nn", {"autograd"}},
    {"autograd", {"tensor"}},
    {"data", {"tensor"}},
    {"elastic", {"comm"}},
    {"comm", {"tensor"}},
    {"tensor", {}},
    {"tests", {"tools"}},
};

// What a folder may use: itself and whatever the arrows reach.
std::set<std::string> reachable(const std::string& folder) {
  std::set<std::string> seen{folder};
  for (const std::string& next : kArrows.at(folder)) seen.merge(reachable(next));
  return seen;
}

// Folders that each folder includes.
Edges includes() {
  Edges edges;
  for (const SourceFile& file : source_tree())
    for (const std::string& line : file.lines) {
      const std::string path = included(line), folder = path.substr(0, path.find('/'));
      if (path.find('/') != std::string::npos && kArrows.count(folder)) edges[file.folder].insert(folder);
    }
  return edges;
}

// Folders that each library is linked with: written at configure time from the targets themselves.
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
    if (!linked.count(folder)) continue;  // tools and tests are programs
    for (const std::string& other : used)
      EXPECT_TRUE(other == folder || linked.at(folder).count(other))
          << folder << " includes " << other << " but does not link it";
  }
}

TEST(IncludeRules, EveryFolderIsInTheDiagram) {
  std::ifstream in(std::string(ELINVAR_SOURCE_DIR) + "/README.md");
  std::stringstream readme;
  readme << in.rdbuf();
  for (const auto& [folder, used] : kArrows) EXPECT_NE(readme.str().find(folder), std::string::npos) << folder;
}

}  // namespace
}  // namespace elinvar::test
