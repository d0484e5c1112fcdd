#pragma once
// Small images and their files.
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <stb/stb_image_write.h>

#include <string>

#include "data/image.h"
#include "tensor/philox.h"

namespace elinvar::test {

inline void append_bytes(void* text, void* bytes, int count) {
  static_cast<std::string*>(text)->append(static_cast<const char*>(bytes), static_cast<size_t>(count));
}

// Returns noise, a function of the key.
inline Image random_image(int64_t h, int64_t w, int64_t c, uint64_t key) {
  Image image(h, w, c);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0] >> 24);
  return image;
}

inline std::string png(const Image& image) {
  std::string bytes;
  const int c = static_cast<int>(image.channels), w = static_cast<int>(image.width);
  stbi_write_png_to_func(append_bytes, &bytes, w, static_cast<int>(image.height), c, image.pixels.data(), w * c);
  return bytes;
}

inline std::string jpeg(const Image& image) {
  std::string bytes;
  stbi_write_jpg_to_func(append_bytes, &bytes, static_cast<int>(image.width), static_cast<int>(image.height),
                         static_cast<int>(image.channels), image.pixels.data(), 90);
  return bytes;
}

}  // namespace elinvar::test
