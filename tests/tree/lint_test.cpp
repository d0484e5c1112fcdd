// Rules of tensor/NUMERICS.md and of the project that a compiler does not check.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include "tests/places.h"
#include "tests/support/source_tree.h"

namespace elinvar::test {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void forbid(const char* pattern, const std::function<bool(const SourceFile&)>& where, const char* why) {
  const std::regex regex(pattern);
  each_line(where, [&](const SourceFile& file, size_t number, const std::string& code) {
    EXPECT_FALSE(std::regex_search(code, regex)) << file.path << ":" << number << ": " << why << "\n" << code;
  });
}

bool is_kernel(const SourceFile& file) { return file.folder == "tensor"; }
bool is_library(const SourceFile& file) {
  return file.folder != "tests" && file.folder != "tools" && file.folder != "examples";
}
bool is_ours(const SourceFile& file) { return file.path != "tests/tree/lint_test.cpp"; }

TEST(Lint, FmaIsSpelledInOnePlace) {
  forbid(R"(\b(Neg)?Mul(Add|Sub)\w*\s*\()",
         [](const SourceFile& f) { return is_kernel(f) && f.path != "tensor/simd-inl.h"; },
         "Highway's MulAdd rounds twice on its scalar target; use fma of tensor/simd-inl.h");
}

TEST(Lint, KernelsCallNoLibm) {
  forbid(R"(\bstd::(exp|exp2|expm1|log|log2|log1p|log10|pow|sin|cos|tan|tanh|sinh|cosh|erf|erfc|cbrt|hypot)f?\s*\()",
         [](const SourceFile& f) { return f.path.rfind("tensor/ops/", 0) == 0; },
         "libm differs from machine to machine; tensor/math-inl.h does not");
}

TEST(Lint, NothingReordersSums) {
  forbid(R"(std::(reduce|transform_reduce|execution)\b|#\s*pragma\s+omp|fast-math)"
         R"(|\bhn::(SumOfLanes|ReduceSum|ApproximateReciprocal))",
         is_library, "the order of this sum is not written down, or the function is approximate");
}

TEST(Lint, NothingHiddenDecidesAResult) {
  forbid(R"(\b(random_device|mt19937|minstd_rand|default_random_engine|srand|drand48)\b|std::rand\b)", is_library,
         "randomness is Philox with an explicit key (tensor/philox.h)");
}

// fmt does not compile under nvcc, so no header that a .cu file includes may use it.
TEST(Lint, HeadersForDeviceCodeAreFreeOfFmt) {
  std::map<std::string, const SourceFile*> by_path;
  for (const SourceFile& file : source_tree()) by_path[file.path] = &file;
  std::function<void(const std::string&, const std::string&, std::set<std::string>&)> visit =
      [&](const std::string& path, const std::string& from, std::set<std::string>& seen) {
        EXPECT_FALSE(path.rfind("fmt/", 0) == 0 || path.rfind("spdlog/", 0) == 0) << from << " includes " << path;
        if (!by_path.count(path) || !seen.insert(path).second) return;
        for (const std::string& line : by_path[path]->lines) {
          const std::string next = included(line);
          if (!next.empty()) visit(next, path, seen);
        }
      };
  for (const SourceFile& file : source_tree()) {
    const bool op =
        file.path.rfind("tensor/ops/", 0) == 0 && ends_with(file.path, ".h") && !ends_with(file.path, "-inl.h");
    std::set<std::string> seen;
    if (op || ends_with(file.path, ".cu")) visit(file.path, "", seen);
  }
  for (const char* path : {"tensor/tensor.h", "tensor/view.h", "tensor/philox.h", "tensor/shape.h", "tensor/dtype.h",
                           "tensor/stream.h", "tensor/numerics.h"}) {
    std::set<std::string> seen;
    ASSERT_TRUE(by_path.count(path)) << path;
    visit(path, "", seen);
  }
}

TEST(Lint, NothingIsLeftForLater) { forbid(R"(\b(TODO|FIXME|XXX|HACK)\b)", is_ours, "do it, or write an issue"); }

TEST(Lint, NothingThatOurCompilersLack) {
  forbid(R"(std::(source_location|format)\b|#\s*include\s*<(format|source_location|expected|print)>)", is_ours,
         "g++ 12 or clang 14 does not have it");
}

// No caller could catch a broken invariant, or an exception that leaves the body of a thread.
TEST(Lint, LibrariesNeverExitAndNeverPrint) {
  const std::set<std::string> last_words = {"tensor/base/check.cpp", "tensor/base/threads.cpp"};
  forbid(R"(std::(exit|quick_exit|_Exit|cout|cerr|clog)\b|[^n]printf\s*\()",
         [&](const SourceFile& f) { return is_library(f) && !last_words.contains(f.path); },
         "errors are thrown, results returned; only programs talk");
}

TEST(Lint, ThreadsAreStartedInOnePlace) {
  forbid(R"(std::(async\b|j?thread(\s+\w+)?\s*[({]))",
         [](const SourceFile& f) { return f.folder != "tests" && f.path != "tensor/base/threads.h"; },
         "start_thread of tensor/base/threads.h says in words where there cannot be one more");
}

TEST(Lint, HeadersAreGuardedAndDocumented) {
  for (const SourceFile& file : source_tree()) {
    if (!ends_with(file.path, ".h")) continue;
    ASSERT_FALSE(file.lines.empty()) << file.path;
    bool comment = false, guard = false;
    for (size_t i = 0; i < file.lines.size() && i < 30; ++i) {
      comment = comment || (i < 3 && file.lines[i].rfind("//", 0) == 0);
      guard = guard || file.lines[i] == "#pragma once" || file.lines[i].find("HWY_TARGET_TOGGLE") != std::string::npos;
    }
    EXPECT_TRUE(comment) << file.path << " does not begin by saying what it is";
    EXPECT_TRUE(guard) << file.path << " has no #pragma once (or, in -inl.h, HWY_TARGET_TOGGLE)";
  }
}

TEST(Lint, LinesFitIn120Columns) {
  for (const SourceFile& file : source_tree())
    for (size_t i = 0; i < file.lines.size(); ++i) {
      // A UTF-8 character begins with a byte that is not 10xxxxxx.
      const auto columns = std::ranges::count_if(file.lines[i], [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(columns, 120) << file.path << ":" << i + 1;
    }
}

std::set<std::string> names_in(const std::string& path, const std::string& pattern) {
  std::ifstream in(std::string(ELINVAR_SOURCE_DIR) + "/" + path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::regex regex(pattern);
  std::set<std::string> names;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), regex); at != std::sregex_iterator(); ++at)
    names.insert((*at)[1]);
  return names;
}

TEST(Lint, PyTorchTrainsTheNetworksOfBench) {
  std::set<std::string> ours = names_in("tools/bench/model_cases.cpp", R"re((?:_case\(|\.name = )"(\w+)")re");
  ours.insert("chargptexperts");  // a variant of chargpt
  EXPECT_GT(ours.size(), 20u);
  EXPECT_EQ(ours, names_in("tools/peers/torch_networks/cases.py", R"re(\n    "(\w+)": \(\d+, )re"));
}

TEST(Lint, FilesAreNamedAfterAnIdea) {
  const std::regex vague(R"((^|[/_])(utils?|common|misc|helpers?|manager)([_.]|$))");
  for (const SourceFile& file : source_tree()) EXPECT_FALSE(std::regex_search(file.path, vague)) << file.path;
}

}  // namespace
}  // namespace elinvar::test
