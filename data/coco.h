#pragma once
// COCO's annotations of boxes: a JSON object with the lists
//   images        {"id", "file_name", "width", "height"}
//   categories    {"id", "name"}; classes are numbered in the order of their ids
//   annotations   {"id", "image_id", "category_id", "bbox": [left, top, width, height] in pixels}
// Other keys are ignored, and so are annotations with "iscrowd": 1, which are regions and not objects. A box may reach
// up to kBeyond pixels beyond its image, as roundings make them, and is cut at its border.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/image_source.h"

namespace elinvar {

inline constexpr double kBeyond = 1.0;

struct CocoImage {
  int64_t id = 0;
  std::string file;  // "file_name"
  int64_t width = 0, height = 0;
  std::vector<ImageBox> boxes = {};  // in the order of the annotations
};

struct CocoAnnotations {
  std::vector<std::string> class_names;
  std::vector<CocoImage> images;  // in the order of their ids
};

// Throws Failure, which names `where` and, where there is one, the id of the image or the annotation: for text that is
// not such JSON (with the line), for ids that occur twice or are unknown, for boxes beyond their image or without an
// area. Calls `broken`, if it is not null, with the message for a box of the last two sorts, which is then left out.
CocoAnnotations read_coco(std::string_view text, const std::string& where,
                          const std::function<void(const std::string&)>& broken = {});

}  // namespace elinvar
