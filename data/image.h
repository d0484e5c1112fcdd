#pragma once
// Decoded images: bytes in rows, (height, width, channels).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/base/failure.h"

namespace elinvar {

struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t height = 0, width = 0, channels = 0;
  int64_t bytes() const { return height * width * channels; }
};

struct Image {
  std::vector<uint8_t> pixels;
  int64_t height = 0, width = 0, channels = 0;

  Image() = default;
  Image(int64_t h, int64_t w, int64_t c) : pixels(static_cast<size_t>(h * w * c)), height(h), width(w), channels(c) {}
  ImageView view() const { return {pixels.data(), height, width, channels}; }
};

// The file itself is at fault, not the reading of it: whoever reads it again finds the same.
class BrokenImage : public Failure {
 public:
  using Failure::Failure;
};

inline constexpr int64_t kMostPixels = int64_t{1} << 28;
inline constexpr int64_t kMostScans = 100;  // a progressive JPEG has about ten, and a few bytes are one

// Decodes a JPEG or PNG to 1 channel or 3. The same bytes give the same pixels on every machine. What becomes of
//   grey                 three equal channels
//   progressive JPEG     as any other; one that is arithmetic-coded, lossless or of 12 bits is broken
//   CMYK and YCCK JPEG   with Adobe's marker, which says that inks are stored inverted: r = c * k / 255, and so on;
//                        four components without the marker could be anything: broken
//   16 bits a channel    the upper eight
//   palettes             their colours
//   transparency         left out: the colour below it counts
//   EXIF orientation     the image is turned upright (data/exif.h)
//   colour profiles      not looked at: all is taken for sRGB
// Throws BrokenImage naming `where` for bytes that are neither format, damaged or truncated (a JPEG must have its end
// marker, every part of a PNG its checksum), or of more than kMostPixels or kMostScans. Thread-safe.
Image decode_image(std::string_view bytes, int channels, const std::string& where);

}  // namespace elinvar
