#include "data/coco.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tensor/base/check.h"
#include "tensor/base/json.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostCocoSide = int64_t{1} << 24;

// Outlines of objects are most of such a file, and are not kept.
Json parse_without_outlines(std::string_view text, const std::string& where) {
  if (nested_deeper(text, kMostNesting)) fail("[coco] '{}' is nested deeper than {} levels", where, kMostNesting);
  const auto kept = [](int, Json::parse_event_t event, const Json& parsed) {
    return event != Json::parse_event_t::key || parsed != "segmentation";
  };
  try {
    return Json::parse(text.begin(), text.end(), kept);
  } catch (const Json::parse_error& error) {
    const std::string_view message = error.what();  // "[json.exception.parse_error.101] parse error at line 3, .."
    fail("[coco] '{}' is no JSON: {}", where, message.substr(std::min(message.find("parse error at"), message.size())));
  }
}

// Reads the fields of one entry of a list, whose name and id messages contain.
class CocoEntry {
 public:
  CocoEntry(const std::string& where, const char* list, const Json& entry) : where_(where), list_(list), json_(entry) {
    if (!json_.is_object()) fail("[coco] '{}': an entry of \"{}\" is no object", where_, list_);
    id_ = integer("id");
  }

  int64_t id() const { return id_; }
  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) refuse(fmt::format("has no \"{}\"", key));
    return *found;
  }
  int64_t integer(const char* key, int64_t most = int64_t{1} << 53) const {
    const Json& value = at(key);
    if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > static_cast<double>(most))
      refuse(fmt::format("needs an integer from 0 to {} as \"{}\"", most, key));
    return value.get<int64_t>();
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) refuse(fmt::format("needs a text as \"{}\"", key));
    return value.get<std::string>();
  }
  bool crowd() const {
    const auto found = json_.find("iscrowd");
    return found != json_.end() && *found == 1;
  }
  [[noreturn]] void refuse(const std::string& complaint) const { throw Failure(message(complaint)); }
  std::string message(const std::string& complaint) const {
    return fmt::format("[coco] '{}': {} {} {}", where_, list_, id_, complaint);
  }

 private:
  const std::string& where_;
  const char* list_;  // "annotation"
  const Json& json_;
  int64_t id_ = -1;
};

class CocoReader {
 public:
  CocoReader(std::string_view text, const std::string& where, const std::function<void(const std::string&)>& broken)
      : where_(where), broken_(broken), json_(parse_without_outlines(text, where)) {}

  CocoAnnotations read() {
    read_categories();
    for (const Json& json : list("images")) read_image({where_, "image", json});
    std::ranges::sort(all_.images, {}, &CocoImage::id);
    for (size_t i = 0; i < all_.images.size(); ++i) place_of_[all_.images[i].id] = i;
    if (place_of_.size() < all_.images.size()) {
      const auto twice = std::ranges::adjacent_find(all_.images, {}, &CocoImage::id);
      fail("[coco] '{}': image {} occurs twice", where_, twice->id);
    }
    for (const Json& json : list("annotations")) read_annotation({where_, "annotation", json});
    return std::move(all_);
  }

 private:
  const Json& list(const char* name) const {
    const auto found = json_.is_object() ? json_.find(name) : json_.end();
    if (found == json_.end() || !found->is_array()) fail("[coco] '{}' has no list \"{}\"", where_, name);
    return *found;
  }

  void read_categories() {
    std::map<int64_t, std::string> names;
    for (const Json& json : list("categories")) {
      const CocoEntry category(where_, "category", json);
      if (!names.emplace(category.id(), category.text("name")).second) category.refuse("occurs twice");
    }
    if (names.empty()) fail("[coco] '{}' has no categories", where_);
    for (const auto& [id, name] : names) {
      class_of_id_.emplace(id, static_cast<int64_t>(all_.class_names.size()));
      all_.class_names.push_back(name);
    }
  }

  void read_image(const CocoEntry& entry) {
    CocoImage image{.id = entry.id(),
                    .file = entry.text("file_name"),
                    .width = entry.integer("width", kMostCocoSide),
                    .height = entry.integer("height", kMostCocoSide)};
    if (image.width < 1 || image.height < 1) entry.refuse("has no pixels");
    all_.images.push_back(std::move(image));
  }

  void read_annotation(const CocoEntry& entry) {
    const int64_t of_image = entry.integer("image_id"), category = entry.integer("category_id");
    const auto place = place_of_.find(of_image);
    if (place == place_of_.end()) entry.refuse(fmt::format("is of image {}, which is not among \"images\"", of_image));
    const auto label = class_of_id_.find(category);
    if (label == class_of_id_.end())
      entry.refuse(fmt::format("has category {}, which is not among \"categories\"", category));
    if (entry.crowd()) return;
    const Json& json = entry.at("bbox");
    double b[4];
    bool numbers = json.is_array() && json.size() == 4;
    for (size_t i = 0; numbers && i < 4; ++i) {
      numbers = json[i].is_number() && std::isfinite(json[i].get<double>());
      b[i] = numbers ? json[i].get<double>() : 0;
    }
    if (!numbers) entry.refuse("needs four numbers as \"bbox\"");
    CocoImage& image = all_.images[place->second];
    const auto w = static_cast<double>(image.width), h = static_cast<double>(image.height);
    const std::string box = fmt::format("has the box [{}, {}, {}, {}], which", b[0], b[1], b[2], b[3]);
    if (!(b[0] >= -kBeyond && b[1] >= -kBeyond && b[0] + b[2] <= w + kBeyond && b[1] + b[3] <= h + kBeyond))
      return leave_out(entry,
                       fmt::format("{} is not within image {} of {} x {}", box, of_image, image.width, image.height));
    const ImageBox made{label->second, std::max(b[0], 0.0), std::max(b[1], 0.0), std::min(b[0] + b[2], w),
                        std::min(b[1] + b[3], h)};
    if (!(made.x2 > made.x1 && made.y2 > made.y1)) return leave_out(entry, box + " has no area");
    image.boxes.push_back(made);
  }

  void leave_out(const CocoEntry& entry, const std::string& complaint) const {
    if (!broken_) entry.refuse(complaint);
    broken_(entry.message(complaint));
  }

  const std::string& where_;
  const std::function<void(const std::string&)>& broken_;
  Json json_;
  CocoAnnotations all_ = {};
  std::map<int64_t, int64_t> class_of_id_ = {};
  std::map<int64_t, size_t> place_of_ = {};  // in all_.images, by id
};

}  // namespace

CocoAnnotations read_coco(std::string_view text, const std::string& where,
                          const std::function<void(const std::string&)>& broken) {
  return CocoReader(text, where, broken).read();
}

}  // namespace elinvar
