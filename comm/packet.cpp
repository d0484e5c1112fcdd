#include "comm/packet.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/base/json.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMagic = "ELNV";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 44;

static_assert(std::endian::native == std::endian::little, "numbers of the header are copied as they lie in memory");

struct Header {
  uint32_t version = kVersion;
  uint64_t run = 0, sender = 0;
  int64_t generation = 0, step = 0;
  uint32_t blobs = 0;
};

// Calls visit(field) for each number of the header in wire order.
template <class H, class Visit>
void each_field(H& header, Visit&& visit) {
  visit(header.version);
  visit(header.run);
  visit(header.sender);
  visit(header.generation);
  visit(header.step);
  visit(header.blobs);
}

std::string text_error(std::string_view text, const PacketLimits& limits) {
  if (text.size() > limits.body_bytes)
    return fmt::format("a body of {} bytes, at most {} expected", text.size(), limits.body_bytes);
  if (nested_deeper(text, limits.body_depth))
    return fmt::format("a body nested deeper than {} levels", limits.body_depth);
  return "";
}

// Sets `object`. Returns what is wrong with the text, or "".
std::string read_object(const Blob& blob, const PacketLimits& limits, Json& object) {
  const std::string_view text(reinterpret_cast<const char*>(blob.data), blob.bytes);
  if (std::string error = text_error(text, limits); !error.empty()) return error;
  object = Json::parse(text.begin(), text.end(), nullptr, false);
  if (object.is_discarded()) return "a body that is not JSON";
  if (!object.is_object()) return fmt::format("a body that is {}, not an object", object.type_name());
  return "";
}

std::string kind_error(const std::string& kind, const PacketLimits& limits) {
  if (kind.empty() || kind.size() > limits.kind_bytes)
    return fmt::format("a kind of {} bytes, 1 to {} expected", kind.size(), limits.kind_bytes);
  const bool printable = std::ranges::all_of(kind, [](unsigned char c) { return c >= ' ' && c <= '~'; });
  return printable ? "" : "a kind with other characters than those of ASCII that can be printed";
}

std::string blob_error(size_t index, size_t bytes, const PacketLimits& limits) {
  if (bytes <= limits.blob_bytes) return "";
  return fmt::format("blob {} has {} bytes, at most {} expected", index, bytes, limits.blob_bytes);
}

// Sets `message`. Returns what is wrong with the frames, or "".
std::string read(std::vector<Blob>& frames, const PacketLimits& limits, Packet& message) {
  if (frames.size() < 2) return fmt::format("{} frames, at least 2 expected", frames.size());
  const Blob& first = frames[0];
  if (first.bytes < kMagic.size() || std::memcmp(first.data, kMagic.data(), kMagic.size()) != 0)
    return "not a message of this protocol";
  Header header;
  if (first.bytes >= kMagic.size() + sizeof header.version)
    std::memcpy(&header.version, first.data + kMagic.size(), sizeof header.version);
  if (header.version != kVersion) return fmt::format("version {}, {} expected", header.version, kVersion);
  if (first.bytes != kHeaderBytes) return fmt::format("a header of {} bytes, {} expected", first.bytes, kHeaderBytes);
  const std::byte* from = first.data + kMagic.size();
  each_field(header, [&](auto& field) {
    std::memcpy(&field, from, sizeof field);
    from += sizeof field;
  });
  if (header.blobs > limits.blobs) return fmt::format("{} blobs, at most {} expected", header.blobs, limits.blobs);
  if (header.blobs != frames.size() - 2)
    return fmt::format("{} blobs, {} expected from the header", frames.size() - 2, header.blobs);
  for (size_t i = 2; i < frames.size(); ++i)
    if (std::string error = blob_error(i - 2, frames[i].bytes, limits); !error.empty()) return error;
  if (std::string error = read_object(frames[1], limits, message.body); !error.empty()) return error;
  const auto kind = message.body.find("kind");
  if (kind == message.body.end() || !kind->is_string()) return "a body without a kind";
  message.kind = kind->get<std::string>();
  if (std::string error = kind_error(message.kind, limits); !error.empty()) return error;
  message.body.erase(kind);
  message.run = header.run;
  message.sender = header.sender;
  message.generation = header.generation;
  message.step = header.step;
  message.blobs.assign(std::make_move_iterator(frames.begin() + 2), std::make_move_iterator(frames.end()));
  return "";
}

}  // namespace

Blob blob_of(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  const auto* data = reinterpret_cast<const std::byte*>(owner->data());
  const size_t bytes = owner->size();
  return {std::move(owner), data, bytes};
}

Json object_from(const Blob& text, const PacketLimits& limits) {
  Json object;
  const std::string error = read_object(text, limits, object);
  check(error.empty(), "[message] malformed: {}", error);
  return object;
}

std::vector<Blob> encode(Packet message, const PacketLimits& limits) {
  const auto require = [](const std::string& error) { check(error.empty(), "[message] cannot be sent: {}", error); };
  check(message.body.is_object(), "[message] expected an object as the body, got {}", message.body.type_name());
  check(!message.body.contains("kind"), "[message] the body has a key 'kind', which is the message's own");
  check(message.blobs.size() <= limits.blobs, "[message] expected at most {} blobs, got {}", limits.blobs,
        message.blobs.size());
  for (size_t i = 0; i < message.blobs.size(); ++i) require(blob_error(i, message.blobs[i].bytes, limits));
  require(kind_error(message.kind, limits));

  const Header header{kVersion,           message.run,  message.sender,
                      message.generation, message.step, static_cast<uint32_t>(message.blobs.size())};
  std::string first(kMagic);
  each_field(header, [&](const auto& field) { first.append(reinterpret_cast<const char*>(&field), sizeof field); });
  message.body["kind"] = std::move(message.kind);
  // Names and reasons may quote bytes of files; invalid UTF-8 is replaced.
  std::string text = message.body.dump(-1, ' ', false, Json::error_handler_t::replace);
  require(text_error(text, limits));

  std::vector<Blob> frames;
  frames.reserve(2 + message.blobs.size());
  frames.push_back(blob_of(std::move(first)));
  frames.push_back(blob_of(std::move(text)));
  for (Blob& blob : message.blobs) frames.push_back(std::move(blob));
  return frames;
}

Decoded decode(std::vector<Blob> frames, const PacketLimits& limits) {
  Packet message;
  std::string error = read(frames, limits, message);
  if (!error.empty()) return {std::nullopt, std::move(error)};
  return {std::move(message), ""};
}

}  // namespace elinvar
