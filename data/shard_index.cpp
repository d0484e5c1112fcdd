#include "data/shard_index.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "data/tar.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/digest.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kIndexMagic = "elinvar shard index 1\n";
constexpr int64_t kLongestLabel = 64, kLongestJson = 1 << 20;  // bytes; a longer file is something else

// Returns the line that identifies what an index was made for: the current shard, and the kind of label.
std::string identity_of(const fs::path& shard, const ShardOptions& options) {
  struct stat status;
  if (::stat(shard.c_str(), &status) != 0) fail("cannot look at {}: {}", shard.string(), std::strerror(errno));
  return fmt::format("{} bytes of {}.{:09}, label {}\n", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                     options.label_field.empty() ? "cls" : "json " + options.label_field);
}

fs::path place_of(const fs::path& shard, const ShardOptions& options) {
  if (options.index_folder.empty()) return shard.string() + ".index";
  const std::string whole = fs::absolute(shard).lexically_normal().string();
  return options.index_folder /
         fmt::format("{}-{}.index", shard.filename().string(), digest_bytes(whole.data(), whole.size()).hex());
}

// Returns "" if the file cannot be read, which is treated like a damaged one.
std::string contents_of(const fs::path& path) {
  try {
    return read_file(path);
  } catch (const Failure&) {
    return {};
  }
}

// Writes the file completely or not at all; concurrent processes write the same contents.
void write_aside_and_rename(const fs::path& path, std::string_view bytes) {
  static std::atomic<int64_t> written{0};
  const fs::path aside = path.string() + fmt::format(".{}-{}", ::getpid(), ++written);
  std::error_code error;
  try {
    File::create(aside).write(bytes);
    rename_file(aside, path);
  } catch (...) {
    fs::remove(aside, error);
    throw;
  }
}

void append(std::string& bytes, int64_t value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }

void append(std::string& bytes, const std::vector<int64_t>& values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
}

std::vector<int64_t> take(std::string_view& bytes, size_t count) {
  std::vector<int64_t> values(count);
  std::memcpy(values.data(), bytes.data(), count * sizeof(int64_t));
  bytes.remove_prefix(count * sizeof(int64_t));
  return values;
}

// The members of one sample found so far.
struct Sample {
  std::string key;
  const TarMember *image = nullptr, *label = nullptr;
  std::string others;  // names of further members, for messages
};

class Indexer {
 public:
  Indexer(const File& file, const ShardOptions& options) : file_(file), options_(options) {}

  template <class Add>
  void run(const Add& add) {
    const std::vector<TarMember> members = tar_members(file_);
    Sample sample;
    const auto finish = [&] {
      if (!sample.key.empty()) add(sample.key, *image_of(sample), label_of(sample));
    };
    for (const TarMember& member : members) {
      const size_t folder = member.name.rfind('/') + 1, dot = member.name.find('.', folder);
      const std::string_view name = std::string_view(member.name).substr(folder);
      if (name.starts_with('.') || (name.starts_with("__") && name.ends_with("__")) || dot == member.name.npos)
        continue;
      std::string key = member.name.substr(0, dot), end = member.name.substr(dot + 1);
      for (char& c : end) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (key != sample.key) {
        finish();
        sample = {};
        sample.key = std::move(key);
      }
      if (end == "jpg" || end == "jpeg" || end == "png") assign(sample, sample.image, member);
      else if (end == (options_.label_field.empty() ? "cls" : "json")) assign(sample, sample.label, member);
      else sample.others += (sample.others.empty() ? "." : ", .") + end;
    }
    finish();
  }

 private:
  [[noreturn]] void refuse(const Sample& sample, const std::string& complaint) const {
    fail("[webdataset] '{}': sample '{}' {}", file_.path().string(), sample.key, complaint);
  }

  void assign(const Sample& sample, const TarMember*& place, const TarMember& member) const {
    if (place) refuse(sample, fmt::format("has both '{}' and '{}'; expected one of them", place->name, member.name));
    place = &member;
  }

  const TarMember* image_of(const Sample& sample) const {
    if (!sample.image)
      refuse(sample,
             fmt::format("has no .jpg, .jpeg or .png beside it, but {}; the members of a sample must follow one "
                         "another in the archive",
                         sample.others.empty() ? "nothing else" : sample.others));
    return sample.image;
  }

  int64_t label_of(const Sample& sample) const {
    const bool json = !options_.label_field.empty();
    if (!sample.label)
      refuse(sample, fmt::format("has no .{}; {}", json ? "json" : "cls",
                                 json ? "without data.label_field the label is read from a .cls"
                                      : "set data.label_field if the label is a field of a .json"));
    const int64_t most = json ? kLongestJson : kLongestLabel;
    if (sample.label->size > most)
      refuse(sample, fmt::format("has a label file of {} bytes, the most is {}", sample.label->size, most));
    std::string text(static_cast<size_t>(sample.label->size), '\0');
    file_.read(sample.label->offset, text.data(), text.size());
    return json ? label_in_json(sample, text) : label_in_text(sample, text);
  }

  int64_t label_in_text(const Sample& sample, std::string_view text) const {
    constexpr std::string_view kBlank = " \t\r\n";
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    text = text.substr(0, text.find_last_not_of(kBlank) + 1);
    int64_t label = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
    if (error != std::errc() || end != text.data() + text.size() || label < 0)
      refuse(sample, fmt::format("has the label '{}', expected a whole number from 0 up", text));
    return label;
  }

  int64_t label_in_json(const Sample& sample, const std::string& text) const {
    const Json json = parse_json(text);
    if (!json.is_object()) refuse(sample, "has a .json that is no object");
    const auto field = json.find(options_.label_field);
    if (field == json.end()) refuse(sample, fmt::format("has a .json without '{}'", options_.label_field));
    const bool whole = field->is_number_integer() && (field->is_number_unsigned() || field->get<int64_t>() >= 0);
    if (!whole || field->get<uint64_t>() > INT64_MAX)
      refuse(sample, fmt::format("has '{}' = {}, expected a whole number from 0 up", options_.label_field,
                                 field->dump(-1, ' ', false, Json::error_handler_t::replace)));
    return field->get<int64_t>();
  }

  const File& file_;
  const ShardOptions& options_;
};

}  // namespace

ShardIndex::ShardIndex(const fs::path& shard, const ShardOptions& options) : shard_(shard) {
  const std::string now = identity_of(shard, options);
  const fs::path place = place_of(shard, options);
  std::error_code error;
  if (!fs::exists(place, error)) made_because_ = "it had no index";
  else if (!from_bytes(contents_of(place), now)) made_because_ = "its index was damaged, or of another shard or label";
  if (made_because_.empty()) return;

  offsets_ = sizes_ = labels_ = key_ends_ = {};
  keys_.clear();
  make(options);
  try {
    make_directories(place.parent_path());
    write_aside_and_rename(place, to_bytes(now));
  } catch (const Failure& failure) {
    not_kept_because_ = failure.what();
  }
}

void ShardIndex::make(const ShardOptions& options) {
  const File file = File::open(shard_);
  Indexer(file, options).run([&](const std::string& key, const TarMember& image, int64_t label) {
    offsets_.push_back(image.offset);
    sizes_.push_back(image.size);
    labels_.push_back(label);
    keys_ += key;
    key_ends_.push_back(static_cast<int64_t>(keys_.size()));
  });
}

// The format: the magic line, the line about the shard, the number of samples and of bytes in keys, four numbers per
// sample, the keys, and the digest of all this.
std::string ShardIndex::to_bytes(std::string_view about) const {
  std::string bytes(kIndexMagic);
  bytes += about;
  append(bytes, static_cast<int64_t>(size()));
  append(bytes, static_cast<int64_t>(keys_.size()));
  for (const auto* values : {&offsets_, &sizes_, &labels_, &key_ends_}) append(bytes, *values);
  bytes += keys_;
  const Digest digest = digest_bytes(bytes.data(), bytes.size());
  append(bytes, static_cast<int64_t>(digest.low));
  append(bytes, static_cast<int64_t>(digest.high));
  return bytes;
}

bool ShardIndex::from_bytes(std::string_view bytes, std::string_view about) {
  if (bytes.size() < 2 * sizeof(int64_t)) return false;
  std::string_view contents = bytes.substr(0, bytes.size() - 2 * sizeof(int64_t)), end = bytes.substr(contents.size());
  const Digest digest = digest_bytes(contents.data(), contents.size());
  const std::vector<int64_t> noted = take(end, 2);
  if (noted[0] != static_cast<int64_t>(digest.low) || noted[1] != static_cast<int64_t>(digest.high)) return false;
  for (const std::string_view line : {kIndexMagic, about}) {
    if (!contents.starts_with(line)) return false;
    contents.remove_prefix(line.size());
  }
  // The digest proves that to_bytes() wrote this, so the rest is well formed.
  const std::vector<int64_t> counts = take(contents, 2);
  const auto samples = static_cast<size_t>(counts[0]);
  for (auto* values : {&offsets_, &sizes_, &labels_, &key_ends_}) *values = take(contents, samples);
  keys_ = contents;
  return true;
}

std::string_view ShardIndex::key(size_t i) const {
  const auto begin = static_cast<size_t>(i == 0 ? 0 : key_ends_[i - 1]);
  return std::string_view(keys_).substr(begin, static_cast<size_t>(key_ends_[i]) - begin);
}

// Opens the shard each time, because there may be more shards than a process may hold open.
std::string ShardIndex::read_image(size_t i) const {
  std::string bytes(static_cast<size_t>(sizes_[i]), '\0');
  File::open(shard_).read(offsets_[i], bytes.data(), bytes.size());
  return bytes;
}

}  // namespace elinvar
