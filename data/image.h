#pragma once
// Decoded images: bytes in rows, (height, width, channels).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// Decodes a JPEG or PNG to the given number of channels (1 or 3). Throws Failure naming `where` if the bytes are
// neither, damaged or truncated (a JPEG must have its end marker, every part of a PNG its checksum), or larger than
// 2^28 pixels. Thread-safe. The same bytes give the same pixels on every machine.
Image decode_image(std::string_view bytes, int channels, const std::string& where);

}  // namespace elinvar
