#include "elastic/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "elastic/checkpoint/part_contents.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/reason.h"
#include "tensor/safetensors.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAside = ".writing-";
constexpr int64_t kPartBytes = int64_t{1} << 30;

std::optional<int64_t> step_of(const std::string& name) {
  int64_t step = 0;
  if (!name.starts_with("step-")) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + 5, end, step);
  if (error != std::errc{} || stop != end || step < 0 || name != fmt::format("step-{}", step)) return std::nullopt;
  return step;
}

// Splits tensors in name order; a new part begins where a part would exceed kPartBytes.
std::vector<StateDict> parts_of(const StateDict& state) {
  std::vector<StateDict> parts(1);
  int64_t bytes = 0;
  for (const auto& [name, tensor] : state) {
    if (bytes > 0 && bytes + tensor.bytes() > kPartBytes) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().emplace(name, tensor);
    bytes += tensor.bytes();
  }
  return parts;
}

// Calls `read` and adds to its failures which checkpoint they concern.
template <class Read>
auto checked(const fs::path& path, Read&& read) {
  try {
    return read();
  } catch (const std::exception& error) {  // for example: the manifest does not parse, or a part is gone
    fail("checkpoint {} cannot be used: {}", path.string(), reason_of(error));
  }
}

}  // namespace

std::string part_file(int part, int parts) { return fmt::format("part-{}-of-{}.safetensors", part, parts); }

struct PartFile::Open {
  File file;
  Hasher hasher;
  int64_t bytes = 0;
};

PartFile::PartFile(const fs::path& path) : open_(new Open{.file = File::create(path), .hasher = {}}) {}
PartFile::PartFile(PartFile&&) noexcept = default;

PartFile::~PartFile() {
  std::error_code ignored;
  if (open_) fs::remove(open_->file.path(), ignored);
}

void PartFile::write(const void* bytes, size_t count) {
  open_->file.write(bytes, count);
  open_->hasher.add(bytes, count);
  open_->bytes += static_cast<int64_t>(count);
}

int64_t PartFile::bytes() const { return open_->bytes; }

CheckpointPart PartFile::finish() {
  open_->file.sync();
  CheckpointPart part{
      .file = open_->file.path().filename().string(), .bytes = open_->bytes, .digest = open_->hasher.digest()};
  open_.reset();
  return part;
}

CheckpointStore::CheckpointStore(fs::path directory, int keep) : directory_(std::move(directory)), keep_(keep) {
  check(keep >= 1, "[checkpoint] at least one must be kept, got keep = {}", keep);
}

void CheckpointStore::prepare() {
  make_directories(directory_);
  for (const fs::path& path : paths_in(directory_))
    if (path.filename().string().starts_with(kAside)) remove_tree(path);
}

fs::path CheckpointStore::path_of(int64_t step) const { return directory_ / fmt::format("step-{}", step); }

std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> steps;
  for (const fs::path& path : paths_in(directory_))
    if (const auto step = step_of(path.filename().string())) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path CheckpointStore::aside_of(int64_t step) const { return directory_ / fmt::format("{}{}", kAside, step); }

PartFile CheckpointStore::create_part(int64_t step, const std::string& file) const {
  const fs::path aside = aside_of(step);
  if (!fs::exists(directory_.parent_path())) fail("{} is gone", directory_.parent_path().string());
  make_directories(aside);
  remove_tree(aside / file);  // left by an attempt that a death interrupted
  return PartFile(aside / file);
}

CheckpointPart CheckpointStore::write_part(int64_t step, const std::string& file, const StateDict& tensors,
                                           std::span<const StateSlice> slices) const {
  const PartContents contents = contents_of(tensors, slices);
  PartFile part = create_part(step, file);
  stream_safetensors(contents.tensors, contents.metadata,
                     [&](const auto&, const void* bytes, size_t count) { part.write(bytes, count); });
  CheckpointPart written = part.finish();
  written.sliced = !slices.empty();
  return written;
}

// Returns the steps with an uncommitted folder, ascending.
std::vector<int64_t> CheckpointStore::steps_aside() const {
  std::vector<int64_t> steps;
  for (const fs::path& path : paths_in(directory_)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kAside)) continue;
    if (const auto step = step_of("step-" + name.substr(std::strlen(kAside)))) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void CheckpointStore::discard_parts(int64_t step, int parts) const {
  const fs::path aside = aside_of(step);
  std::error_code ignored;
  for (int part = 0; part < parts; ++part) fs::remove(aside / part_file(part, parts), ignored);
  fs::remove(aside, ignored);  // fails if another attempt has files in it
}

void CheckpointStore::trim_aside(size_t keep) const {
  const std::vector<int64_t> aside = steps_aside();
  std::error_code ignored;
  for (size_t i = 0; i + keep < aside.size(); ++i) fs::remove_all(aside_of(aside[i]), ignored);
}

void CheckpointStore::commit(int64_t step, const std::vector<CheckpointPart>& parts, const Digest& digest) {
  const fs::path final = path_of(step), aside = aside_of(step);
  const fs::path replaced = directory_ / fmt::format("{}{}-replaced", kAside, step);
  // A coordinator that is gone may already have committed the same parts.
  if (!fs::exists(aside) && manifest_digest(step) == digest) return;
  if (!fs::exists(aside)) fail("the parts of checkpoint {} are gone", step);
  try {
    // Files left by an attempt that a death interrupted.
    for (const fs::path& path : paths_in(aside))
      if (std::none_of(parts.begin(), parts.end(), [&](const auto& p) { return p.file == path.filename(); }))
        remove_tree(path);
    write_manifest(aside, step, parts, digest);
    if (fs::exists(final)) rename_file(final, replaced);
    rename_file(aside, final);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    throw;
  }
  sync_directory(directory_);
}

std::string CheckpointStore::prune(int64_t step) const {
  const auto sweep = [this] {
    for (const fs::path& path : paths_in(directory_)) {
      const std::string name = path.filename().string();
      if (name.starts_with(kAside) && (name.ends_with("-removed") || name.ends_with("-replaced"))) remove_tree(path);
    }
  };
  try {
    sweep();
    // Later checkpoints can only be ones that a resume found damaged; they neither count nor are removed.
    std::vector<int64_t> present = steps();
    std::erase_if(present, [&](int64_t other) { return other > step || other == 0; });
    // Renamed before removal, so that a resume never considers a partly removed checkpoint.
    for (size_t i = 0; i + static_cast<size_t>(keep_) < present.size(); ++i)
      rename_file(path_of(present[i]), directory_ / fmt::format("{}{}-removed", kAside, present[i]));
    sweep();
    for (const int64_t aside : steps_aside())
      if (aside < step) remove_tree(aside_of(aside));
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

void CheckpointStore::write(int64_t step, const StateDict& state, const Digest& digest) {
  if (fs::exists(path_of(step))) {
    try {
      if (read(step).digest == digest) return;
    } catch (const Failure&) {
    }
  }
  remove_tree(aside_of(step));
  std::vector<CheckpointPart> parts;
  try {
    for (const StateDict& part : parts_of(state))
      parts.push_back(write_part(step, fmt::format("part-{}.safetensors", parts.size()), part));
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(aside_of(step), ignored);
    throw;
  }
  commit(step, parts, digest);
  (void)prune(step);
}

void CheckpointStore::copy_first(const CheckpointStore& other) {
  if (!fs::exists(other.path_of(0))) return;
  const Checkpoint first = other.read(0);
  make_directories(directory_);
  write(0, first.state, first.digest);
}

std::optional<Digest> CheckpointStore::manifest_digest(int64_t step) const {
  const fs::path path = path_of(step) / "manifest.json";
  if (!fs::exists(path)) return std::nullopt;
  try {
    return Digest::parse(read_json_object(path).at("state").get<std::string>());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Checkpoint CheckpointStore::read(int64_t step) const {
  return checked(path_of(step), [&] {
    const CheckpointReader reader(path_of(step), step);
    Checkpoint checkpoint{.step = step, .state = reader.read_verified(), .digest = reader.digest()};
    if (digest(checkpoint.state) != checkpoint.digest) fail("the digest of its state is wrong");
    return checkpoint;
  });
}

CheckpointReader CheckpointStore::open(int64_t step) const {
  return checked(path_of(step), [&] {
    CheckpointReader reader(path_of(step), step);
    reader.verify_parts();
    return reader;
  });
}

std::optional<Checkpoint> CheckpointStore::newest_good(const std::function<std::string(const Checkpoint&)>& acceptable,
                                                       std::vector<Rejected>& rejected) const {
  const std::vector<int64_t> present = steps();
  for (size_t i = present.size(); i-- > 0;) {
    try {
      Checkpoint checkpoint = read(present[i]);
      const std::string reason = acceptable(checkpoint);
      if (reason.empty()) return checkpoint;
      rejected.push_back({present[i], reason});
    } catch (const Failure& error) {
      rejected.push_back({present[i], error.what()});
    }
  }
  return std::nullopt;
}

}  // namespace elinvar
