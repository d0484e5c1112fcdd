#include "data/tar.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kLongestName = 1 << 16;  // bytes of a long name or of a pax header; more indicates damage

struct TarHeader {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6], version[2],
      user[32], group[32], major[8], minor[8], prefix[155], padding[12];
};
static_assert(sizeof(TarHeader) == kBlock);

template <size_t N>
std::string_view text_of(const char (&field)[N]) {
  return {field, strnlen(field, N)};
}

// Parses octal digits between blanks, or GNU's base 256 if the first bit is set.
template <size_t N>
std::optional<int64_t> number_of(const char (&field)[N]) {
  if (static_cast<unsigned char>(field[0]) & 0x80) {
    uint64_t value = static_cast<unsigned char>(field[0]) & 0x7F;
    for (size_t i = 1; i < N; ++i) {
      if (value >> 54) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(field[i]);
    }
    return static_cast<int64_t>(value);
  }
  int64_t value = 0;
  for (char c : text_of(field)) {
    if (c == ' ') continue;
    if (c < '0' || c > '7' || value >> 58) return std::nullopt;
    value = value * 8 + (c - '0');
  }
  return value;
}

bool checksum_agrees(const TarHeader& header) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
  int64_t sum = 8 * ' ';  // the checksum field itself counts as blanks
  for (size_t i = 0; i < sizeof(TarHeader); ++i)
    if (i < offsetof(TarHeader, checksum) || i >= offsetof(TarHeader, type)) sum += bytes[i];
  return number_of(header.checksum) == sum;
}

bool all_zero(const TarHeader& header) {
  const auto* bytes = reinterpret_cast<const char*>(&header);
  return std::all_of(bytes, bytes + sizeof(TarHeader), [](char c) { return c == 0; });
}

class Members {
 public:
  explicit Members(const File& file) : file_(file), path_(file.path().string()) {}

  std::vector<TarMember> read() const {
    std::vector<TarMember> members;
    std::string long_name;
    int64_t long_size = -1;  // of the next member; -1 if its header has the size
    const int64_t end = file_.size();
    for (int64_t at = 0;;) {
      if (at + kBlock > end)
        fail("[tar] '{}' ends at byte {} without the mark of its end: it is truncated, or no tar archive", path_, end);
      TarHeader header;
      file_.read(at, &header, kBlock);
      if (all_zero(header)) return members;
      if (!checksum_agrees(header)) refuse(header, at);
      const std::optional<int64_t> stated = long_size >= 0 ? long_size : number_of(header.size);
      at += kBlock;
      if (!stated || *stated > end - at)
        fail("[tar] '{}': member '{}' at byte {} does not fit the file's {} bytes: it is truncated or damaged", path_,
             text_of(header.name), at - kBlock, end);
      const int64_t size = *stated;
      switch (header.type) {
        case 'L':
          long_name = meta(at, size);
          long_name.resize(strnlen(long_name.data(), long_name.size()));
          break;
        case 'x':
          read_pax(meta(at, size), long_name, long_size);
          break;
        case 'K':
        case 'g':
          break;
        case 'S':
          fail("[tar] '{}': member '{}' is sparse, which is not understood; pack it without --sparse", path_,
               text_of(header.name));
        default:
          if (header.type == '0' || header.type == '\0' || header.type == '7') {
            std::string name = long_name.empty() ? name_of(header) : long_name;
            while (name.starts_with("./")) name.erase(0, 2);
            members.push_back({std::move(name), at, size});
          }
          long_name.clear();
          long_size = -1;
      }
      at += (size + kBlock - 1) / kBlock * kBlock;
    }
  }

 private:
  [[noreturn]] void refuse(const TarHeader& header, int64_t at) const {
    if (at > 0) fail("[tar] '{}' is damaged: wrong checksum in the header at byte {}", path_, at);
    if (std::memcmp(&header, "\x1f\x8b", 2) == 0)
      fail("[tar] '{}' is compressed; unpack it first (gunzip, or tar xf), members are read in place", path_);
    fail("[tar] '{}' is neither a folder nor a tar archive", path_);
  }

  std::string meta(int64_t at, int64_t size) const {
    if (size > kLongestName) fail("[tar] '{}' is damaged: a name of {} bytes at byte {}", path_, size, at);
    std::string bytes(static_cast<size_t>(size), '\0');
    file_.read(at, bytes.data(), bytes.size());
    return bytes;
  }

  // Records "<length> <key>=<value>\n".
  void read_pax(std::string_view records, std::string& name, int64_t& size) const {
    while (!records.empty() && records.front() != '\0') {
      size_t length = 0;
      const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
      const auto digits = static_cast<size_t>(end - records.data());
      if (error != std::errc() || length < digits + 3 || length > records.size() || *end != ' ')
        fail("[tar] '{}' is damaged: malformed pax header", path_);
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      const size_t equals = record.find('=');
      const std::string_view key = record.substr(0, equals);
      const std::string_view value = equals == record.npos ? "" : record.substr(equals + 1);
      if (key == "path") name = value;
      if (key == "size") {
        int64_t n = -1;
        std::from_chars(value.data(), value.data() + value.size(), n);
        if (n < 0) fail("[tar] '{}' is damaged: malformed size in a pax header", path_);
        size = n;
      }
      records.remove_prefix(length);
    }
  }

  static std::string name_of(const TarHeader& header) {
    // The field is a prefix in ustar only; GNU's format has times there.
    if (std::memcmp(header.magic, "ustar\0", 6) == 0 && header.prefix[0])
      return fmt::format("{}/{}", text_of(header.prefix), text_of(header.name));
    return std::string(text_of(header.name));
  }

  const File& file_;
  std::string path_;
};

class Tar final : public FileSet {
 public:
  Tar(const std::string& path, const std::vector<std::string>& exclude) : FileSet(path), file_(File::open(path)) {
    std::vector<TarMember> members = tar_members(file_);
    std::erase_if(members, [&](const TarMember& member) { return is_left_out(member.name, exclude); });
    std::stable_sort(members.begin(), members.end(),
                     [](const TarMember& a, const TarMember& b) { return a.name < b.name; });
    for (TarMember& member : members) {
      if (!entries_.empty() && entries_.back().path == member.name) {
        entries_.pop_back();
        offsets_.pop_back();
      }
      entries_.push_back({std::move(member.name), member.size});
      offsets_.push_back(member.offset);
    }
  }

  std::string read(size_t i) const override {
    std::string bytes(static_cast<size_t>(entries_[i].size), '\0');
    file_.read(offsets_[i], bytes.data(), bytes.size());
    return bytes;
  }

 private:
  // Whether a member or one of its folders is hidden or excluded.
  static bool is_left_out(const std::string& name, const std::vector<std::string>& exclude) {
    for (size_t end = name.find('/');; end = name.find('/', end + 1)) {
      const std::string part = name.substr(0, end);
      if (part.substr(part.rfind('/') + 1).starts_with('.') || matches_any(part, exclude)) return true;
      if (end == name.npos) return false;
    }
  }

  File file_;
  std::vector<int64_t> offsets_;  // of the contents, parallel to entries_
};

}  // namespace

std::vector<TarMember> tar_members(const File& file) { return Members(file).read(); }

std::unique_ptr<FileSet> open_tar(const std::string& path, const std::vector<std::string>& exclude) {
  return std::make_unique<Tar>(path, exclude);
}

}  // namespace elinvar
