#include "data/exif.h"

#include <algorithm>
#include <utility>

namespace elinvar {
namespace {

// Returns a number of `count` bytes; 0 beyond the end.
size_t number_at(std::string_view bytes, size_t at, size_t count, bool little_endian) {
  if (at > bytes.size() || count > bytes.size() - at) return 0;
  size_t value = 0;
  for (size_t i = 0; i < count; ++i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + (little_endian ? count - 1 - i : i)]);
  return value;
}

}  // namespace

int orientation_of(std::string_view tiff) {
  constexpr size_t kOrientation = 0x0112, kShort = 3, kEntry = 12;
  const bool little = tiff.starts_with(std::string_view("II*\0", 4));
  if (!little && !tiff.starts_with(std::string_view("MM\0*", 4))) return 1;
  const size_t directory = number_at(tiff, 4, 4, little), entries = number_at(tiff, directory, 2, little);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + i * kEntry;
    if (number_at(tiff, at, 2, little) != kOrientation) continue;
    const size_t value = number_at(tiff, at + 8, 2, little);
    return number_at(tiff, at + 2, 2, little) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool transposed = orientation >= 5;
  const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const int64_t h = image.height, w = image.width, c = image.channels;
  Image turned(transposed ? w : h, transposed ? h : w, c);
  uint8_t* to = turned.pixels.data();
  for (int64_t y = 0; y < turned.height; ++y)
    for (int64_t x = 0; x < turned.width; ++x, to += c) {
      const auto [row, column] = transposed ? std::pair(x, y) : std::pair(y, x);
      const int64_t at = (from_below ? h - 1 - row : row) * w + (from_right ? w - 1 - column : column);
      std::copy_n(image.pixels.data() + at * c, c, to);
    }
  return turned;
}

}  // namespace elinvar
