#include "data/class_image.h"

#include <fmt/format.h>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <stb/stb_image_write.h>

#include <cstdint>
#include <unordered_map>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

// Types of a PNG, byte 25 of the file; its bits per sample are byte 24 (W3C, "PNG specification", IHDR).
constexpr int kGreyType = 0, kPaletteType = 3;

int byte_at(std::string_view bytes, size_t i) { return static_cast<unsigned char>(bytes[i]); }

uint32_t colour_at(const uint8_t* rgb) {
  return static_cast<uint32_t>(rgb[0]) << 16 | static_cast<uint32_t>(rgb[1]) << 8 | rgb[2];
}

// Returns the indices of a whole PNG's colours; of equal colours, the first.
std::unordered_map<uint32_t, uint8_t> palette_of(std::string_view bytes) {
  std::unordered_map<uint32_t, uint8_t> indices;
  for (size_t at = 8; at + 12 <= bytes.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<size_t>(byte_at(bytes, at + i));
    if (length > bytes.size() - at - 12) break;
    if (bytes.substr(at + 4, 4) == "PLTE") {
      const auto* colours = reinterpret_cast<const uint8_t*>(bytes.data() + at + 8);
      for (size_t k = 0; k < length / 3; ++k) indices.emplace(colour_at(colours + 3 * k), static_cast<uint8_t>(k));
      break;
    }
    at += length + 12;
  }
  return indices;
}

}  // namespace

Image decode_classes(std::string_view bytes, const std::string& where) {
  const bool png = bytes.starts_with("\x89PNG\r\n\x1A\n") && bytes.size() > 25;
  const int bits = png ? byte_at(bytes, 24) : 0, type = png ? byte_at(bytes, 25) : 0;
  if (png && ((type != kGreyType && type != kPaletteType) || bits > 8))
    throw BrokenImage(fmt::format(
        "[image] '{}' is no image of classes: a PNG of greys with up to 8 bits, or with a palette, expected, "
        "got {}",
        where, bits > 8 ? "16 bits" : "colours"));
  if (!png && bytes.starts_with("\xFF\xD8"))
    throw BrokenImage(fmt::format("[image] '{}' is a JPEG, which changes classes at their borders; use PNG", where));
  if (type == kGreyType) {
    Image grey = decode_image(bytes, 1, where);
    for (uint8_t& pixel : grey.pixels) pixel >>= 8 - bits;  // the decoder scales fewer bits to 0..255
    return grey;
  }
  const std::unordered_map<uint32_t, uint8_t> indices = palette_of(bytes);
  const Image colours = decode_image(bytes, 3, where);
  Image classes(colours.height, colours.width, 1);
  for (size_t at = 0; at < classes.pixels.size(); ++at) {
    const auto found = indices.find(colour_at(colours.pixels.data() + 3 * at));
    if (found == indices.end()) throw BrokenImage(fmt::format("[image] '{}' has a colour beyond its palette", where));
    classes.pixels[at] = found->second;
  }
  return classes;
}

std::string encode_classes(const Image& classes) {
  std::string bytes;
  const auto append = [](void* to, void* part, int count) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(part), static_cast<size_t>(count));
  };
  const int width = static_cast<int>(classes.width);
  invariant(classes.channels == 1 && stbi_write_png_to_func(append, &bytes, width, static_cast<int>(classes.height), 1,
                                                            classes.pixels.data(), width) != 0,
            "an image of classes that can be encoded");
  return bytes;
}

}  // namespace elinvar
