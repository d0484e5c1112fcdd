#include "tensor/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/base/json.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLongestHeader = 100'000'000;  // the format's own limit

const char* format_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "F64";
    case DType::bf16:
      return "BF16";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::u8:
      return "U8";
    case DType::f32:
      break;
  }
  return "F32";
}

std::optional<DType> parse_dtype(const std::string& name) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8})
    if (name == format_name(dtype)) return dtype;
  return std::nullopt;
}

std::string header_of(const StateDict& tensors, const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    check(name != "__metadata__", "[safetensors] a tensor cannot be named __metadata__");
    header[name] = {{"dtype", format_name(tensor.dtype())},
                    {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// Converts an IEEE 754 binary16, exactly.
float float_of_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, exponent = half >> 10 & 0x1Fu;
  const uint32_t fraction = half & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 0xFFu : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

using Entry = SafetensorsFile::Entry;

// Returns a JSON number that is a non-negative integer; nullopt for anything else.
std::optional<int64_t> extent_of(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return value.get<int64_t>();
}

Entry parse_entry(const std::string& file, const std::string& name, const Json& json, int64_t data_bytes) {
  const auto refuse = [&](const char* what) { fail("[safetensors] {}: tensor '{}' {}", file, name, what); };
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets"))
    refuse("lacks dtype, shape or data_offsets");
  const Json &dtype = json["dtype"], &shape = json["shape"], &offsets = json["data_offsets"];

  Entry entry{.half = dtype == "F16"};
  const auto known = dtype.is_string() ? parse_dtype(dtype.get<std::string>()) : std::nullopt;
  if (!known && !entry.half) refuse("has a dtype other than F32, F64, F16, BF16, I32, I64 and U8");
  if (known) entry.dtype = *known;
  const int64_t size = entry.half ? 2 : size_of(entry.dtype);

  if (!shape.is_array() || shape.size() > static_cast<size_t>(Shape::kMaxDims))
    refuse("has a malformed shape or more than 8 dimensions");
  int64_t bytes = size;  // counts empty extents as 1, so that strides cannot overflow either
  for (const Json& value : shape) {
    const auto extent = extent_of(value);
    if (!extent) refuse("has a malformed shape");
    entry.shape.push_back(*extent);
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(1, *extent), &bytes)) refuse("is larger than any file");
  }

  bytes = entry.shape.numel() * size;
  if (!offsets.is_array() || offsets.size() != 2) refuse("has malformed offsets");
  const auto begin = extent_of(offsets[0]), end = extent_of(offsets[1]);
  if (!begin || !end || *begin > *end || *end > data_bytes)
    refuse("has offsets outside the file: it is truncated or corrupt");
  if (*end - *begin != bytes) refuse("has offsets that do not fit its shape");
  entry.begin = *begin;
  entry.end = *end;
  return entry;
}

}  // namespace

void stream_safetensors(
    const StateDict& tensors, const std::map<std::string, std::string>& metadata,
    const std::function<void(const std::shared_ptr<const void>& owner, const void* bytes, size_t count)>& sink) {
  const std::string header = header_of(tensors, metadata);
  const uint64_t length = header.size();
  const auto head = std::make_shared<std::string>(reinterpret_cast<const char*>(&length), sizeof length);
  *head += header;
  sink(head, head->data(), head->size());
  for (const auto& [name, tensor] : tensors) {
    const auto x = std::make_shared<Tensor>(tensor.to_contiguous());
    sink(x, x->raw(), static_cast<size_t>(x->bytes()));
  }
}

SafetensorsWritten write_safetensors(const std::filesystem::path& path, const StateDict& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  File file = File::create(path);
  Hasher hasher;
  SafetensorsWritten written;
  try {
    stream_safetensors(tensors, metadata, [&](const std::shared_ptr<const void>&, const void* bytes, size_t count) {
      file.write(bytes, count);
      hasher.add(bytes, count);
      written.bytes += static_cast<int64_t>(count);
    });
    file.sync();
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    throw;
  }
  written.digest = hasher.digest();
  return written;
}

namespace {

// Refuses a file of torch.save(), which is a zip archive or, before PyTorch 1.6, a pickle, and says how to convert it.
void refuse_pickle(const File& file, const std::string& name) {
  std::array<unsigned char, 4> begin{};
  if (file.size() < static_cast<int64_t>(begin.size())) return;
  file.read(0, begin.data(), begin.size());
  const bool zip = begin == std::array<unsigned char, 4>{'P', 'K', 3, 4};
  const bool pickle = begin[0] == 0x80 && begin[1] >= 2 && begin[1] <= 5 && begin[2] != 0;
  const std::string_view path = name;
  const bool named = path.ends_with(".pth") || path.ends_with(".pt") || path.ends_with(".bin");
  if (!zip && !(pickle && named)) return;
  fail(
      "[safetensors] {0} is a file of torch.save or another archive, no safetensors file; convert it in Python: "
      "safetensors.torch.save_file({{k: v.clone() for k, v in torch.load('{0}', weights_only=True).items()}}, "
      "'model.safetensors')",
      name);
}

constexpr int64_t kHashedBytes = int64_t{8} << 20;

// Returns the names of tensors in the order of their bytes, which is without gaps if the file is well-formed.
std::vector<std::string> in_file_order(const std::map<std::string, Entry>& entries) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries) names.push_back(name);
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    const Entry &x = entries.at(a), &y = entries.at(b);
    return std::tie(x.begin, x.end, a) < std::tie(y.begin, y.end, b);
  });
  return names;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(File::open(path)) {
  const std::string name = path.string();
  const int64_t size = file_.size();
  uint64_t length = 0;
  refuse_pickle(file_, name);
  if (size < 8) fail("[safetensors] {} is no safetensors file: its {} bytes are too few for a header", name, size);
  file_.read(0, &length, sizeof length);
  if (length > static_cast<uint64_t>(std::min(kLongestHeader, size - 8)))
    fail("[safetensors] {}: a header of {} bytes does not fit a file of {}; it is truncated or no safetensors file",
         name, length, size);
  head_.resize(8 + length);
  file_.read(0, head_.data(), head_.size());

  const int64_t data_bytes = size - static_cast<int64_t>(head_.size());
  const Json json = parse_json(std::string_view(head_).substr(8));
  if (!json.is_object()) fail("[safetensors] {}: the header is no JSON object", name);

  for (const auto& [key, value] : json.items()) {
    if (key != "__metadata__") {
      entries_.emplace(key, parse_entry(name, key, value, data_bytes));
      continue;
    }
    if (!value.is_object()) fail("[safetensors] {}: __metadata__ is no object", name);
    for (const auto& [metadata_key, text] : value.items()) {
      if (!text.is_string()) fail("[safetensors] {}: __metadata__ holds something other than text", name);
      metadata_[metadata_key] = text.get<std::string>();
    }
  }

  int64_t at = 0;
  for (const std::string& tensor : in_file_order(entries_)) {
    const Entry& entry = entries_.at(tensor);
    if (entry.begin != at) fail("[safetensors] {}: tensor '{}' overlaps another or leaves a gap", name, tensor);
    at = entry.end;
  }
  if (at != data_bytes) fail("[safetensors] {}: {} bytes of elements expected, {} found", name, at, data_bytes);
}

void SafetensorsFile::read(const std::string& name, int64_t begin, int64_t end, void* to) const {
  const auto found = entries_.find(name);
  check(found != entries_.end(), "[safetensors] {} has no tensor '{}'", file_.path().string(), name);
  const Entry& entry = found->second;
  check(0 <= begin && begin <= end && end <= entry.shape.numel(),
        "[safetensors] '{}' of shape {} has no elements {} to {}", name, to_string(entry.shape), begin, end);
  const int64_t size = entry.half ? 2 : size_of(entry.dtype);
  std::vector<uint16_t> halves(entry.half ? static_cast<size_t>(end - begin) : 0);
  file_.read(static_cast<int64_t>(head_.size()) + entry.begin + begin * size, entry.half ? halves.data() : to,
             static_cast<size_t>((end - begin) * size));
  if (entry.half) std::ranges::transform(halves, static_cast<float*>(to), float_of_half);
}

Digest SafetensorsFile::read(const std::function<void*(const std::string& name)>& to) const {
  Hasher hasher;
  hasher.add(head_.data(), head_.size());
  for (const std::string& name : in_file_order(entries_)) {
    const Entry& entry = entries_.at(name);
    const size_t count = static_cast<size_t>(entry.end - entry.begin);
    void* const target = to(name);
    std::vector<uint16_t> halves(entry.half ? count / 2 : 0);
    void* const bytes = entry.half ? halves.data() : target;
    file_.read(static_cast<int64_t>(head_.size()) + entry.begin, bytes, count);
    hasher.add(bytes, count);
    if (entry.half) std::ranges::transform(halves, static_cast<float*>(target), float_of_half);
  }
  return hasher.digest();
}

Digest SafetensorsFile::digest() const {
  Hasher hasher;
  hasher.add(head_.data(), head_.size());
  const int64_t size = bytes();
  std::vector<char> piece(static_cast<size_t>(std::min(kHashedBytes, size)));
  for (int64_t at = static_cast<int64_t>(head_.size()); at < size; at += kHashedBytes) {
    const size_t count = static_cast<size_t>(std::min(kHashedBytes, size - at));
    file_.read(at, piece.data(), count);
    hasher.add(piece.data(), count);
  }
  return hasher.digest();
}

SafetensorsContents read_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  SafetensorsContents contents{.tensors = {}, .metadata = file.metadata(), .digest = {}, .bytes = file.bytes()};
  contents.digest = file.read([&](const std::string& name) {
    const Entry& entry = file.tensors().at(name);
    return contents.tensors.emplace(name, Tensor::empty(entry.shape, entry.dtype)).first->second.raw();
  });
  return contents;
}

}  // namespace elinvar
