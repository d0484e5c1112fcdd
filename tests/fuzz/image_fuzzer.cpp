// JPEG and PNG, and PNG of classes.
#include <cstdint>

#include "data/class_image.h"
#include "data/image.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

// Returns whether an image is small. Large ones are valid but need time and memory, and show no more than small ones.
bool small(std::string_view bytes) {
  constexpr uint64_t kMost = 1 << 20;
  const auto number = [&](size_t at, size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count && at + i < bytes.size(); ++i)
      value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return value;
  };
  if (bytes.starts_with("\x89PNG"))
    return number(16, 4) <= kMost && number(20, 4) <= kMost && number(16, 4) * number(20, 4) <= kMost;
  for (size_t at = 0; at + 9 < bytes.size(); ++at) {
    const uint64_t marker = number(at, 2);
    if (marker >= 0xFFC0 && marker <= 0xFFC2 && number(at + 5, 2) * number(at + 7, 2) > kMost) return false;
  }
  return true;
}

const FuzzTarget kImage("image", [](std::string_view bytes) {
  if (!small(bytes)) return;
  for (const int channels : {1, 3}) {
    const Image image = decode_image(bytes, channels, "image");
    must(image.channels == channels && static_cast<int64_t>(image.pixels.size()) == image.view().bytes(),
         "an image has its pixels");
  }
  must(decode_classes(bytes, "image").channels == 1, "a pixel has one class");
});

}  // namespace
}  // namespace elinvar::test
