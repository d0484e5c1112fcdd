// The joint coverage of all tests on the interpreter: they launch every kernel, and unreached.txt lists the kernels of
// which they reach fewer instructions, with reasons. Runs after those tests, on the files that they wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/places.h"
#include "tests/ptx/kernels.h"
#include "tests/ptx/module.h"

namespace elinvar::ptx {
namespace {

constexpr double kUnlisted = 95;  // least share of instructions of functions that are not listed, in percent

// A digit for each instruction, by function. Kernels of a header are in several files, of which one is executed.
using Reached = std::map<std::string, std::string>;

Reached read_reached(const std::string& folder) {
  Reached all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path());
    for (std::string file, name, digits; in >> file >> name >> digits;) {
      std::string& sum = all[name];
      sum.resize(std::max(sum.size(), digits.size()), '0');
      for (size_t i = 0; i < digits.size(); ++i) sum[i] = std::max(sum[i], digits[i]);
    }
  }
  return all;
}

// A line "24 optimizer lamb_segments reason": of each function in optimizer.cu whose name contains lamb_segments, 24 %
// of the instructions are reached at least.
struct Listed {
  double least = 0;
  std::string file, part, reason;
  bool used = false;
};

std::vector<Listed> read_list() {
  std::vector<Listed> all;
  std::ifstream in(ELINVAR_SOURCE_DIR "/tests/ptx/unreached.txt");
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Listed& listed = all.emplace_back();
    words >> listed.least >> listed.file >> listed.part;
    std::getline(words, listed.reason);
    EXPECT_GT(listed.reason.size(), 10u) << line << ": without a reason";
  }
  return all;
}

TEST(PtxReach, WhatIsNotReachedIsListed) {
  const char* const folder = std::getenv("ELINVAR_PTX_REACH");
  if (folder == nullptr) GTEST_SKIP() << "ELINVAR_PTX_REACH names no folder";
  Reached reached = read_reached(folder);
  std::vector<Listed> list = read_list();
  size_t all = 0, seen = 0, functions = 0, launched = 0;
  for (const std::string& path : files_of_the_build().front().paths) {
    Module module(read_module(path));
    for (const FunctionText& text : module.text().functions) {
      const auto function = module.find(text.name);
      const std::string& digits = reached[function->name];
      const size_t count = function->code.size() - 1, hit = static_cast<size_t>(std::ranges::count(digits, '1'));
      const auto listed = std::ranges::find_if(list, [&](const Listed& l) {
        return l.file == function->file && function->name.find(l.part) != std::string::npos;
      });
      double least = kUnlisted;
      if (listed != list.end()) listed->used = true, least = listed->least;
      EXPECT_GE(100.0 * static_cast<double>(hit), least * static_cast<double>(count))
          << function->file << " " << function->name << ": " << hit << " of " << count << " instructions";
      all += count;
      seen += hit;
      ++functions;
      launched += hit > 0;
    }
  }
  for (const Listed& l : list) EXPECT_TRUE(l.used) << "no function is " << l.file << " " << l.part;
  std::printf("reached %zu of %zu functions, %zu of %zu instructions (%.1f %%)\n", launched, functions, seen, all,
              100.0 * static_cast<double>(seen) / static_cast<double>(all));
}

}  // namespace
}  // namespace elinvar::ptx
