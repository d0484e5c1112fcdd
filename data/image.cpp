#include "data/image.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#include <stb/stb_image.h>

#include "tensor/check.h"

namespace elinvar {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 28;

int64_t byte_at(std::string_view bytes, size_t i) { return static_cast<unsigned char>(bytes[i]); }

int64_t big_endian(std::string_view bytes, size_t at, size_t count) {
  int64_t value = 0;
  for (size_t i = 0; i < count; ++i) value = value << 8 | byte_at(bytes, at + i);
  return value;
}

// Tables of Huffman codes: a byte, 16 counts of codes by length, a byte a code; and so on.
bool has_sound_tables(std::string_view tables) {
  while (!tables.empty()) {
    if (tables.size() < 17) return false;
    size_t codes = 0;
    for (size_t i = 1; i <= 16; ++i) codes += static_cast<size_t>(byte_at(tables, i));
    if (codes > 256 || codes > tables.size() - 17) return false;
    tables.remove_prefix(17 + codes);
  }
  return true;
}

// Walks a JPEG's segments to its end marker. The decoder fills what a truncated file lacks with grey and says nothing,
// and trusts the lengths of code tables (at most 256 codes); so both are seen to here. Coded data lies between the
// segments and escapes its 0xFF: what follows one is 0, a restart marker or the next segment.
bool is_whole_jpeg(std::string_view bytes) {
  constexpr int64_t kEnd = 0xD9, kTables = 0xC4, kFirstRestart = 0xD0, kLastRestart = 0xD7;
  for (size_t at = 2; at + 2 <= bytes.size();) {
    if (byte_at(bytes, at) != 0xFF) {
      ++at;
      continue;
    }
    const int64_t marker = byte_at(bytes, at + 1);
    if (marker == 0xFF) {  // filling
      ++at;
    } else if (marker == 0 || (marker >= kFirstRestart && marker <= kLastRestart)) {
      at += 2;
    } else if (marker == kEnd) {
      return true;
    } else {
      if (at + 4 > bytes.size()) return false;
      const auto length = static_cast<size_t>(big_endian(bytes, at + 2, 2));
      if (length < 2 || length > bytes.size() - at - 2) return false;
      if (marker == kTables && !has_sound_tables(bytes.substr(at + 4, length - 2))) return false;
      at += 2 + length;
    }
  }
  return false;
}

// Parts are length, type, contents, checksum of type and contents; the decoder leaves the checksums unread.
bool is_whole_png(std::string_view bytes) {
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const auto length = static_cast<size_t>(big_endian(bytes, at, 4));
    if (length > bytes.size() - at - 12) return false;
    const auto* start = reinterpret_cast<const Bytef*>(bytes.data() + at + 4);
    if (crc32(0, start, static_cast<uInt>(length + 4)) != static_cast<uLong>(big_endian(bytes, at + 8 + length, 4)))
      return false;
    if (bytes.substr(at + 4, 4) == "IEND") return true;
    at += length + 12;
  }
  return false;
}

}  // namespace

Image decode_image(std::string_view bytes, int channels, const std::string& where) {
  const bool jpeg = bytes.starts_with("\xFF\xD8"), png = bytes.starts_with("\x89PNG\r\n\x1A\n");
  if (!jpeg && !png) fail("[image] '{}' is neither JPEG nor PNG ({} bytes)", where, bytes.size());
  if (jpeg ? !is_whole_jpeg(bytes) : !is_whole_png(bytes))
    fail("[image] '{}' is damaged or truncated ({} bytes of {}); get it again or remove it", where, bytes.size(),
         jpeg ? "JPEG" : "PNG");
  if (bytes.size() > size_t{1} << 30) fail("[image] '{}' has {} bytes, the most is 2^30", where, bytes.size());

  const auto* data = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int size = static_cast<int>(bytes.size());
  int width = 0, height = 0, stored = 0;
  if (stbi_info_from_memory(data, size, &width, &height, &stored) && int64_t{width} * height > kMostPixels)
    fail("[image] '{}' is {} x {}, the most is 2^28 pixels", where, width, height);
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(data, size, &width, &height, &stored, channels), stbi_image_free);
  if (!pixels) fail("[image] '{}' cannot be decoded ({}); get it again or remove it", where, stbi_failure_reason());
  Image image(height, width, channels);
  std::copy_n(pixels.get(), image.pixels.size(), image.pixels.data());
  return image;
}

}  // namespace elinvar
