#include "elastic/ledger/line_file.h"

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

std::string contents(const File& file, int64_t size) {
  std::string text(static_cast<size_t>(size), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

}  // namespace

std::vector<std::string> whole_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1)
    lines.emplace_back(text.substr(begin, end - begin));
  return lines;
}

LineFile::LineFile(const std::filesystem::path& path) : file_(File::append(path)) {
  const int64_t size = file_.size();
  const size_t end = contents(file_, size).rfind('\n');
  size_ = end == std::string::npos ? 0 : static_cast<int64_t>(end) + 1;
  if (size_ < size) file_.truncate(size_);
}

void LineFile::renew(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return;
  const std::string text = read_file(path);
  replace_file(path, std::string_view(text).substr(0, text.rfind('\n') + 1));
}

std::vector<std::string> LineFile::lines() const { return whole_lines(contents(file_, size_)); }

void LineFile::append(std::string_view line) {
  check(line.find('\n') == std::string_view::npos, "[line file] a line cannot hold a newline");
  appended_.append(line);
  appended_ += '\n';
}

void LineFile::write() {
  if (appended_.empty()) return;
  const std::string whole = std::exchange(appended_, {});
  try {
    file_.write(whole);
  } catch (const Failure&) {
    file_.truncate(size_);
    throw;
  }
  size_ += static_cast<int64_t>(whole.size());
}

void LineFile::keep(size_t lines) {
  const std::string text = contents(file_, size_);
  size_t end = 0;
  for (; lines > 0 && end < text.size(); --lines) end = text.find('\n', end) + 1;
  size_ = static_cast<int64_t>(end);
  file_.truncate(size_);
}

bool LineFile::restore() {
  if (file_.size() < size_)
    fail("{} was cut off while the run was writing to it: it has {} bytes, expected {}", path().string(), file_.size(),
         size_);
  if (file_.in_place()) return false;
  if (!create_file(path(), contents(file_, size_)))
    fail("{} was replaced by another file while the run was writing to it", path().string());
  file_ = File::append(path());
  return true;
}

}  // namespace elinvar
