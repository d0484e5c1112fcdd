// COCO's annotations of boxes.
#include "data/coco.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

const FuzzTarget kCoco("coco", [](std::string_view bytes) {
  const bool skip = !bytes.empty() && bytes.back() == '\n';
  const auto ignore = [](const std::string&) {};
  const CocoAnnotations all = read_coco(bytes, "fuzz.json", skip ? ignore : std::function<void(const std::string&)>());
  for (const CocoImage& image : all.images)
    for (const ImageBox& box : image.boxes) {
      must(box.label >= 0 && box.label < static_cast<int64_t>(all.class_names.size()), "a label is one of the classes");
      must(box.x1 >= 0 && box.x1 < box.x2 && box.x2 <= static_cast<double>(image.width) && box.y1 >= 0 &&
               box.y1 < box.y2 && box.y2 <= static_cast<double>(image.height),
           "a box is within its image and has an area");
    }
});

}  // namespace
}  // namespace elinvar::test
