// Images with a class for each pixel, in a folder or a tar: `kind = "image_masks"`. A folder "images" has the images,
// and a folder "masks" or "annotations" in its place, with equal names below, their classes (data/class_image.h). One
// of the other folders of a path may name the split:
//   train/images/a.jpg, train/masks/a.png    or    images/train/a.jpg, annotations/train/a.png
// A mask may have the ending .png, _mask.png or that of the image and .png.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/class_image.h"
#include "data/files.h"
#include "data/image_cache.h"
#include "data/image_source.h"
#include "data/transform.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

struct Pictured {
  size_t image, mask;  // entries
};

// The images of a part of the set, with a last channel for classes.
class MaskImages final : public ImageSource {
 public:
  MaskImages(std::shared_ptr<const FileSet> files, std::vector<Pictured> items, int64_t classes,
             std::shared_ptr<const ImageCache> cache)
      : files_(std::move(files)), items_(std::move(items)), classes_(classes), cache_(std::move(cache)) {}

  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  int64_t label(int64_t) const override { return 0; }
  ImageView image(int64_t i, Image& scratch) const override {
    const Image colours = cache_->decode(files_->read(of(i).image), 3, where(i));
    const std::string where_mask = files_->where(files_->entries()[of(i).mask].path);
    const Image classes = decode_classes(files_->read(of(i).mask), where_mask);
    if (classes.height != colours.height || classes.width != colours.width)
      throw BrokenImage(fmt::format("[image_masks] '{}' is {} x {} pixels, but its image {} x {}", where_mask,
                                    classes.width, classes.height, colours.width, colours.height));
    scratch = Image(colours.height, colours.width, 4);
    for (int64_t at = 0; at < colours.height * colours.width; ++at) {
      const uint8_t label = classes.pixels[static_cast<size_t>(at)];
      if (label >= classes_ && label != kNoClass)
        throw BrokenImage(fmt::format("[image_masks] '{}' has the class {} at row {}, column {}; data.classes = {}",
                                      where_mask, label, at / colours.width, at % colours.width, classes_));
      uint8_t* const to = scratch.pixels.data() + 4 * at;
      std::copy_n(colours.pixels.data() + 3 * at, 3, to);
      to[3] = label;
    }
    return scratch.view();
  }
  std::string where(int64_t i) const override { return files_->where(files_->entries()[of(i).image].path); }
  bool in_memory() const override { return false; }
  int64_t classes() const override { return classes_; }
  void describe(int64_t i, Hasher& hasher) const override {
    for (const size_t entry : {of(i).image, of(i).mask}) {
      hasher.add(files_->entries()[entry].path);
      hasher.add_integer(files_->entries()[entry].size);
    }
  }

 private:
  const Pictured& of(int64_t i) const { return items_[static_cast<size_t>(i)]; }

  std::shared_ptr<const FileSet> files_;
  std::vector<Pictured> items_;
  int64_t classes_;
  std::shared_ptr<const ImageCache> cache_;
};

// Returns the place of the folder's name in a path; npos if it is not one of its folders.
size_t folder_in(std::string_view path, std::string_view folder) {
  const std::string inside = "/" + std::string(folder) + "/";
  if (path.starts_with(inside.substr(1))) return 0;
  const size_t at = path.find(inside);
  return at == path.npos ? at : at + 1;
}

// 0: training, 1: validation, 2: test.
int part_of(std::string_view path) {
  for (size_t begin = 0, end; (end = path.find('/', begin)) != path.npos; begin = end + 1) {
    const std::string_view folder = path.substr(begin, end - begin);
    if (folder.starts_with("val")) return 1;
    if (folder.starts_with("test")) return 2;
  }
  return 0;
}

}  // namespace

ImageParts open_image_masks(const DataConfig& config) {
  const std::shared_ptr<const FileSet> files = open_files(config.path);
  const auto& entries = files->entries();  // sorted by path
  const auto entry_of = [&](const std::string& path) -> std::optional<size_t> {
    const auto found = std::ranges::lower_bound(entries, path, {}, &FileSet::Entry::path);
    if (found == entries.end() || found->path != path) return std::nullopt;
    return static_cast<size_t>(found - entries.begin());
  };
  std::array<std::vector<Pictured>, 3> items;
  constexpr std::string_view kImages = "images";
  for (size_t e = 0; e < entries.size(); ++e) {
    const std::string& path = entries[e].path;
    const size_t at = folder_in(path, kImages);
    if (at == path.npos || !is_image_name(path)) continue;
    std::optional<size_t> mask;
    const std::string before = path.substr(0, at), after = path.substr(at + kImages.size()),
                      stem = after.substr(0, after.rfind('.'));
    for (const char* folder : {"masks", "annotations"})
      for (const std::string& name : {stem + ".png", stem + "_mask.png", after + ".png"})
        if (!mask) mask = entry_of(before + folder + name);
    if (!mask)
      fail("[image_masks] '{}' has no mask: there is no '{}'", files->where(path),
           files->where(before + "masks" + stem + ".png"));
    items[static_cast<size_t>(part_of(path))].push_back({e, *mask});
  }
  if (items[0].empty())
    fail(
        "[image_masks] '{}' has no training images; expected images/<name>.jpg and masks/<name>.png, or these in "
        "train/, "
        "val/ and test/",
        config.path);
  ImageParts parts;
  const auto cache = std::make_shared<const ImageCache>(config.cache_dir, parts.notices);
  const auto opening = [&](std::vector<Pictured>& of_part) -> ImageParts::Open {
    if (of_part.empty()) return {};
    return [files, of_part = std::move(of_part), classes = config.classes, cache] {
      return std::make_shared<MaskImages>(files, of_part, classes, cache);
    };
  };
  parts.training = opening(items[0]);
  parts.validation = opening(items[1]);
  parts.test = opening(items[2]);
  return parts;
}

}  // namespace elinvar
