#include "data/image.h"

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

// The most bytes to which the decoder may grow a buffer on this thread: a small PNG can unpack to gigabytes.
thread_local size_t most_grown = SIZE_MAX;
thread_local bool grew_beyond = false;

void* grown(void* memory, size_t size) {
  grew_beyond = grew_beyond || size > most_grown;
  return size > most_grown ? nullptr : std::realloc(memory, size);
}

}  // namespace

// Zeroed: tables that a file uses but does not define would otherwise have old contents of memory.
#define STBI_MALLOC(size) std::calloc(1, size)
#define STBI_REALLOC(memory, size) grown(memory, size)
#define STBI_FREE(memory) std::free(memory)
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#include <stb/stb_image.h>

#include "data/exif.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

template <class... Args>
[[noreturn]] void broken(fmt::format_string<Args...> message, Args&&... args) {
  throw BrokenImage(fmt::format(message, std::forward<Args>(args)...));
}

int64_t byte_at(std::string_view bytes, size_t i) { return static_cast<unsigned char>(bytes[i]); }

int64_t big_endian(std::string_view bytes, size_t at, size_t count) {
  int64_t value = 0;
  for (size_t i = 0; i < count; ++i) value = value << 8 | byte_at(bytes, at + i);
  return value;
}

// Checks tables of Huffman codes. Each is a byte, 16 counts of codes by length, and a byte per code.
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

// The facts that a file declares, without its pixels.
struct Outline {
  bool whole = false;
  int64_t height = 0, width = 0;
  int64_t components = 0;  // of a JPEG; 0 before the first frame
  int64_t scans = 0;       // of a JPEG; each scan may cover the whole image
  bool adobe = false;      // a JPEG has Adobe's marker
  std::string_view exif = {};
};

// Walks a JPEG's segments to its end marker. The decoder silently fills missing parts of a truncated file with grey,
// and trusts the lengths of code tables (at most 256 codes), so both are checked here. Coded data between the segments
// escapes its 0xFF: the byte after one is 0, a restart marker or the next segment's.
Outline outline_of_jpeg(std::string_view bytes) {
  constexpr int64_t kEnd = 0xD9, kTables = 0xC4, kFirstRestart = 0xD0, kLastRestart = 0xD7, kExif = 0xE1, kAdobe = 0xEE,
                    kScan = 0xDA;
  constexpr std::string_view kExifName("Exif\0\0", 6), kAdobeName("Adobe\0", 6);
  const auto is_frame = [](int64_t marker) {
    return marker >= 0xC0 && marker <= 0xCF && marker != kTables && marker != 0xC8 && marker != 0xCC;
  };
  Outline found;
  for (size_t at = 2; (at = bytes.find('\xFF', at)) != bytes.npos && at + 2 <= bytes.size();) {
    const int64_t marker = byte_at(bytes, at + 1);
    if (marker == 0xFF) {  // fill byte
      ++at;
    } else if (marker == 0 || (marker >= kFirstRestart && marker <= kLastRestart)) {
      at += 2;
    } else if (marker == kEnd) {
      found.whole = true;
      return found;
    } else {
      if (at + 4 > bytes.size()) return found;
      const auto length = static_cast<size_t>(big_endian(bytes, at + 2, 2));
      if (length < 2 || length > bytes.size() - at - 2) return found;
      std::string_view contents = bytes.substr(at + 4, length - 2);
      if (marker == kTables && !has_sound_tables(contents)) return found;
      if (is_frame(marker) && contents.size() > 5 && found.components == 0) {
        found.height = big_endian(contents, 1, 2);
        found.width = big_endian(contents, 3, 2);
        found.components = byte_at(contents, 5);
      }
      if (marker == kScan) ++found.scans;
      if (marker == kAdobe && contents.starts_with(kAdobeName)) found.adobe = true;
      if (marker == kExif && found.exif.empty() && contents.starts_with(kExifName))
        found.exif = contents.substr(kExifName.size());
      at += 2 + length;
    }
  }
  return found;
}

// Parts are length, type, contents, checksum of type and contents; the decoder ignores the checksums.
Outline outline_of_png(std::string_view bytes) {
  Outline found;
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const auto length = static_cast<size_t>(big_endian(bytes, at, 4));
    if (length > bytes.size() - at - 12) return found;
    const auto* start = reinterpret_cast<const Bytef*>(bytes.data() + at + 4);
    if (crc32(0, start, static_cast<uInt>(length + 4)) != static_cast<uLong>(big_endian(bytes, at + 8 + length, 4)))
      return found;
    const std::string_view type = bytes.substr(at + 4, 4);
    if (type == "IHDR" && length >= 8) {
      found.width = big_endian(bytes, at + 8, 4);
      found.height = big_endian(bytes, at + 12, 4);
    }
    if (type == "eXIf") found.exif = bytes.substr(at + 8, length);
    if (type == "IEND") {
      found.whole = true;
      return found;
    }
    at += length + 12;
  }
  return found;
}

// Copies whole pixels except the last; each copy overwrites the excess byte of the one before.
void drop_fourth_channel(const uint8_t* from, Image& image) {
  uint8_t* to = image.pixels.data();
  for (int64_t left = image.height * image.width - 1; left > 0; --left, from += 4, to += 3) std::memcpy(to, from, 4);
  std::memcpy(to, from, 3);
}

}  // namespace

Image decode_image(std::string_view bytes, int channels, const std::string& where) {
  const bool jpeg = bytes.starts_with("\xFF\xD8"), png = bytes.starts_with("\x89PNG\r\n\x1A\n");
  if (!jpeg && !png) broken("[image] '{}' is neither JPEG nor PNG ({} bytes)", where, bytes.size());
  if (bytes.size() > size_t{1} << 30) broken("[image] '{}' has {} bytes, the most is 2^30", where, bytes.size());
  const Outline outline = jpeg ? outline_of_jpeg(bytes) : outline_of_png(bytes);
  if (!outline.whole)
    broken("[image] '{}' is damaged or truncated ({} bytes of {}); get it again or remove it", where, bytes.size(),
           jpeg ? "JPEG" : "PNG");
  if (outline.components == 4 && !outline.adobe)
    broken("[image] '{}' has four components and no Adobe marker to say which colours they are; convert it to RGB",
           where);

  if (outline.scans > kMostScans)
    broken("[image] '{}' has {} scans, the most is {}; save it again or remove it", where, outline.scans, kMostScans);
  if (outline.width > 0 && outline.height > kMostPixels / outline.width)
    broken("[image] '{}' is {} x {}, the most is 2^28 pixels; scale it down or remove it", where, outline.width,
           outline.height);
  // Twice the rows of four channels of 16 bits, for the passes of an interlaced image, or the file, which is copied.
  const auto rows = static_cast<size_t>(outline.height * (8 * outline.width + 1));
  most_grown = png ? 2 * std::max(rows, bytes.size()) + (size_t{1} << 16) : SIZE_MAX;
  grew_beyond = false;
  // The decoder computes a JPEG's colours with vectors, to the same bytes, only if four channels are requested.
  const int computed = jpeg && channels == 3 ? 4 : channels;
  int width = 0, height = 0, stored = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(bytes.data()), static_cast<int>(bytes.size()), &width,
                            &height, &stored, computed),
      stbi_image_free);
  if (!pixels && grew_beyond)
    broken("[image] '{}' unpacks to more than its {} x {} pixels; save it again or remove it", where, outline.width,
           outline.height);
  if (!pixels) broken("[image] '{}' cannot be decoded ({}); get it again or remove it", where, stbi_failure_reason());
  Image image(height, width, channels);
  if (computed == channels) std::copy_n(pixels.get(), image.pixels.size(), image.pixels.data());
  else drop_fourth_channel(pixels.get(), image);
  return upright(std::move(image), orientation_of(outline.exif));
}

}  // namespace elinvar
