#include "data/shards.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <set>

#include "data/files.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNames = 1 << 20;      // names; more indicates a mistake
constexpr size_t kMostNameBytes = 1 << 28;  // of all names
constexpr size_t kLongest = 1 << 14;        // bytes of a pattern, which may have nested braces

bool has_glob(const std::string& name) { return name.find_first_of("*?[") != name.npos; }

// Returns the index of the '}' that matches the '{' at `open`, or npos.
size_t closing(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return text.npos;
}

// "a,{b,c}" -> "a", "{b,c}"
std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == ',' && depth == 0) {
      parts.emplace_back();
      continue;
    }
    depth += (c == '{') - (c == '}');
    parts.back() += c;
  }
  return parts;
}

// "000..146" -> "000", ..., "146"; empty if it is not a range.
std::vector<std::string> range(std::string_view text, const std::string& path) {
  const size_t dots = text.find("..");
  if (dots == text.npos) return {};
  const std::string_view ends[] = {text.substr(0, dots), text.substr(dots + 2)};
  int64_t values[2];
  for (int i = 0; i < 2; ++i) {
    const auto [stop, error] = std::from_chars(ends[i].data(), ends[i].data() + ends[i].size(), values[i]);
    if (error != std::errc() || stop != ends[i].data() + ends[i].size() || values[i] < 0) return {};
  }
  check_setting(values[0] <= values[1] && values[1] - values[0] < static_cast<int64_t>(kMostNames), "data.path",
                "= '{}': {{{}}} is no range of at most 2^20 numbers", path, text);
  std::vector<std::string> names;
  for (int64_t n = values[0]; n <= values[1]; ++n) names.push_back(fmt::format("{:0{}}", n, ends[0].size()));
  return names;
}

std::vector<std::string> expanded(const std::string& pattern, const std::string& path) {
  const size_t open = pattern.find('{');
  if (open == pattern.npos) return {pattern};
  const size_t close = closing(pattern, open);
  check_setting(close != pattern.npos, "data.path", "= '{}' has a brace that is not closed", path);
  const std::string_view inside = std::string_view(pattern).substr(open + 1, close - open - 1);
  std::vector<std::string> choices = range(inside, path);
  if (choices.empty())
    for (const std::string& part : split_at_commas(inside))
      for (std::string& choice : expanded(part, path)) choices.push_back(std::move(choice));
  std::vector<std::string> all;
  const std::vector<std::string> rests = expanded(pattern.substr(close + 1), path);
  check_setting(choices.size() * rests.size() <= kMostNames, "data.path", "= '{}' stands for more than 2^20 files",
                path);
  check_setting(choices.size() * rests.size() * pattern.size() <= kMostNameBytes, "data.path",
                "= '{}' stands for names of more than 2^28 bytes", path);
  for (const std::string& choice : choices)
    for (const std::string& rest : rests) all.push_back(pattern.substr(0, open) + choice + rest);
  return all;
}

void add_matches(const std::string& pattern, std::set<std::string>& paths) {
  glob_t found{};
  const std::unique_ptr<glob_t, void (*)(glob_t*)> freed(&found, globfree);
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  if (result != 0 && result != GLOB_NOMATCH) fail("[webdataset] cannot look for '{}'", pattern);
  size_t added = 0;
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    const std::string name = found.gl_pathv[i];
    if (name.ends_with(".index") || !fs::is_regular_file(name)) continue;
    paths.insert(name);
    ++added;
  }
  if (added == 0) fail("[webdataset] no file matches '{}'; data.path is relative to the current folder", pattern);
}

}  // namespace

std::vector<std::string> shard_paths(const std::string& path) {
  check_setting(path.size() <= kLongest, "data.path", "has {} bytes, the most is {}", path.size(), kLongest);
  std::error_code unknown;  // ignored: a pattern may be longer than a file name
  if (fs::is_regular_file(path, unknown)) return {path};
  std::set<std::string> paths;
  if (fs::is_directory(path, unknown)) {
    const std::unique_ptr<FileSet> files = open_files(path);
    for (const FileSet::Entry& entry : files->entries())
      if (entry.path.ends_with(".tar")) paths.insert((fs::path(path) / entry.path).string());
    if (paths.empty()) fail("[webdataset] folder '{}' holds no *.tar", path);
  } else {
    for (const std::string& name : expanded(path, path)) {
      if (has_glob(name)) {
        add_matches(name, paths);
      } else {
        if (!fs::is_regular_file(name))
          fail("[webdataset] '{}' does not exist; data.path is relative to the current folder", name);
        paths.insert(name);
      }
    }
  }
  return {paths.begin(), paths.end()};
}

}  // namespace elinvar
