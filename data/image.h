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

// Thrown if the contents of a file are at fault, not the reading of it: reading it again fails again.
class BrokenImage : public Failure {
 public:
  using Failure::Failure;
};

inline constexpr int64_t kMostPixels = int64_t{1} << 28;
inline constexpr int64_t kMostScans = 100;  // a progressive JPEG has about ten; each takes few bytes but much time

// Decodes a JPEG or PNG to 1 or 3 channels. The same bytes give the same pixels on every machine. Treatment of
//   grey                 three equal channels
//   progressive JPEG     decoded; arithmetic-coded, lossless and 12-bit JPEGs are broken
//   CMYK and YCCK JPEG   with Adobe's marker, inks are stored inverted: r = c * k / 255, and so on; without the marker,
//                        the meaning of four components is unknown: broken
//   16 bits per channel  the upper eight
//   palettes             their colours
//   transparency         ignored: the stored colour counts
//   EXIF orientation     the image is turned upright (data/exif.h)
//   colour profiles      ignored: colours are taken as sRGB
// Throws BrokenImage, which names `where`, for bytes of neither format, for damaged or truncated ones (a JPEG needs its
// end marker, every part of a PNG its checksum), and for more than kMostPixels or kMostScans. Thread-safe.
Image decode_image(std::string_view bytes, int channels, const std::string& where);

}  // namespace elinvar
