#include "data/token_file.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

struct Form {
  int32_t magic, version;
  int bytes;
};
constexpr Form kForms[] = {{20240520, 1, 2}, {20240801, 7, 4}};
constexpr size_t kHeaderWords = 256;
constexpr int64_t kHeaderBytes = kHeaderWords * sizeof(int32_t);
constexpr size_t kWaitingBytes = 1 << 20;

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path) : path_(path) {
  const File file = File::open(path);
  const int64_t length = file.size();
  std::array<int32_t, 3> header{};
  if (length >= kHeaderBytes) file.read(0, header.data(), sizeof header);
  for (const Form& form : kForms)
    if (header[0] == form.magic && header[1] == form.version) bytes_ = form.bytes;
  if (bytes_ == 0)
    fail(
        "{}: expected a file of tokens, which begins with 20240520 and 1, or with 20240801 and 7; found {} bytes, {} "
        "and {}",
        path.string(), length, header[0], header[1]);
  size_ = header[2];
  if (size_ < 0 || length != kHeaderBytes + size_ * bytes_)
    fail("{}: its header says that it has {} tokens of {} bytes, which needs {} bytes; it has {}", path.string(), size_,
         bytes_, kHeaderBytes + size_ * bytes_, length);
}

void TokenFile::read(int64_t offset, int64_t count, int32_t* tokens) const {
  invariant(offset >= 0 && count >= 0 && offset + count <= size_, "tokens that the file has");
  char* raw = reinterpret_cast<char*>(tokens);
  // Reads narrow tokens into the second half of the array, then widens them in place.
  char* from = raw + count * (static_cast<int>(sizeof(int32_t)) - bytes_);
  File::open(path_).read(kHeaderBytes + offset * bytes_, from, static_cast<size_t>(count * bytes_));
  if (bytes_ == 4) return;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t token;
    std::memcpy(&token, from + i * 2, 2);
    const int32_t wide = token;
    std::memcpy(raw + i * 4, &wide, 4);
  }
}

TokenWriter::TokenWriter(std::filesystem::path path, int64_t vocabulary)
    : path_(std::move(path)),
      aside_((check_replaceable(path_), remove_abandoned(path_), unfinished_name(path_))),
      file_(File::create(aside_)),
      bytes_(vocabulary <= 65536 ? 2 : 4) {
  waiting_.assign(static_cast<size_t>(kHeaderBytes), '\0');
}

TokenWriter::~TokenWriter() {
  std::error_code ignored;
  if (!aside_.empty()) std::filesystem::remove(aside_, ignored);
}

void TokenWriter::add(const std::vector<int32_t>& tokens) {
  if (size_ + static_cast<int64_t>(tokens.size()) > std::numeric_limits<int32_t>::max())
    fail("{}: a file of tokens has 2^31 - 1 of them at most; split the document that has more", path_.string());
  const size_t before = waiting_.size();
  waiting_.resize(before + tokens.size() * static_cast<size_t>(bytes_));
  char* to = waiting_.data() + before;
  for (const int32_t token : tokens) {
    std::memcpy(to, &token, static_cast<size_t>(bytes_));
    to += bytes_;
  }
  size_ += static_cast<int64_t>(tokens.size());
  if (waiting_.size() >= kWaitingBytes) flush();
}

void TokenWriter::flush() {
  file_.write(waiting_);
  waiting_.clear();
}

void TokenWriter::finish() {
  flush();
  const Form& form = kForms[bytes_ == 2 ? 0 : 1];
  const std::array<int32_t, 3> header{form.magic, form.version, static_cast<int32_t>(size_)};
  file_.overwrite(0, header.data(), sizeof header);
  file_.sync();
  rename_file(aside_, path_);
  aside_.clear();
}

}  // namespace elinvar
