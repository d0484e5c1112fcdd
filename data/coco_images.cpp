// Images with the boxes of COCO's annotations (data/coco.h), in a folder or a tar. For each part of the set, whose name
// begins with "train", "val" or "test", there is one of
//   annotations/instances_<part>.json, with images in <part>/ or images/<part>/
//   <part>/_annotations.coco.json, with images in <part>/
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "data/coco.h"
#include "data/files.h"
#include "data/image_cache.h"
#include "data/image_source.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

// The place of a part of the set.
struct CocoPart {
  size_t entry;                      // of the annotations
  std::vector<std::string> folders;  // that may have the images
};

std::optional<std::pair<std::string, CocoPart>> part_at(const std::string& path, size_t entry) {
  constexpr std::string_view kBefore = "annotations/instances_", kEnd = ".json", kOwn = "/_annotations.coco.json";
  if (path.ends_with(kOwn)) {
    const std::string folder = path.substr(0, path.size() - kOwn.size());
    return std::pair(folder.substr(folder.rfind('/') + 1), CocoPart{entry, {folder + "/"}});
  }
  const size_t at = path.rfind(kBefore);
  if (at == path.npos || !path.ends_with(kEnd) || (at > 0 && path[at - 1] != '/')) return std::nullopt;
  const std::string root = path.substr(0, at), name = path.substr(at + kBefore.size());
  const std::string part = name.substr(0, name.size() - kEnd.size());
  return std::pair(part, CocoPart{entry, {root + part + "/", root + "images/" + part + "/"}});
}

class CocoImages final : public ImageSource {
 public:
  // `training` is null for the training part itself; otherwise its classes are those of this part, too.
  CocoImages(std::shared_ptr<const FileSet> files, const CocoPart& part, const CocoImages* training, bool skip,
             std::shared_ptr<const ImageCache> cache, Notices& notices)
      : files_(std::move(files)), cache_(std::move(cache)) {
    const std::string where = files_->where(files_->entries()[part.entry].path);
    int64_t left_out = 0;
    std::string first;
    const auto note = [&](const std::string& message) {
      if (left_out++ == 0) first = message;
    };
    all_ = read_coco(files_->read(part.entry), where, skip ? note : std::function<void(const std::string&)>());
    if (left_out > 0) notices.add(fmt::format("{}; {} such boxes are left out", first, left_out));
    if (training != nullptr && all_.class_names != training->all_.class_names)
      fail("[coco] '{}' has other categories than the training part", where);
    for (const CocoImage& image : all_.images) {
      const auto has = [&](const std::string& folder) { return files_->contains(folder + image.file); };
      const auto folder = std::ranges::find_if(part.folders, has);
      if (folder == part.folders.end())
        fail("[coco] '{}': image {} is missing: there is no '{}'", where, image.id,
             files_->where(part.folders[0] + image.file));
      paths_.push_back(*folder + image.file);
    }
  }

  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  int64_t label(int64_t) const override { return 0; }
  std::span<const ImageBox> boxes(int64_t i) const override { return of(i).boxes; }
  ImageView image(int64_t i, Image& scratch) const override {
    scratch = cache_->decode(files_->read(path(i)), 3, where(i));
    if (scratch.width != of(i).width || scratch.height != of(i).height)
      throw BrokenImage(fmt::format("'{}' is {} x {} pixels, but image {} of the annotations is {} x {}", where(i),
                                    scratch.width, scratch.height, of(i).id, of(i).width, of(i).height));
    return scratch.view();
  }
  std::string where(int64_t i) const override { return files_->where(path(i)); }
  bool in_memory() const override { return false; }
  int64_t classes() const override { return static_cast<int64_t>(all_.class_names.size()); }
  const std::vector<std::string>& class_names() const override { return all_.class_names; }
  void describe(int64_t i, Hasher& hasher) const override {
    hasher.add(path(i));
    for (const int64_t side : {of(i).width, of(i).height}) hasher.add_integer(side);
  }

 private:
  const CocoImage& of(int64_t i) const { return all_.images[static_cast<size_t>(i)]; }
  const std::string& path(int64_t i) const { return paths_[static_cast<size_t>(i)]; }

  std::shared_ptr<const FileSet> files_;
  std::shared_ptr<const ImageCache> cache_;
  CocoAnnotations all_;
  std::vector<std::string> paths_;
};

}  // namespace

ImageParts open_coco(const DataConfig& config) {
  const std::shared_ptr<const FileSet> files = open_files(config.path);
  std::array<std::optional<CocoPart>, 3> found;
  constexpr std::array<std::string_view, 3> kNames = {"train", "val", "test"};
  for (size_t e = 0; e < files->entries().size(); ++e) {
    const auto part = part_at(files->entries()[e].path, e);
    for (size_t k = 0; part && k < kNames.size(); ++k) {
      if (!part->first.starts_with(kNames[k])) continue;
      if (found[k])
        fail("[coco] '{}' and '{}' both are annotations of the part \"{}\"",
             files->where(files->entries()[found[k]->entry].path), files->where(files->entries()[e].path), kNames[k]);
      found[k] = part->second;
    }
  }
  if (!found[0])
    fail("[coco] '{}' has neither annotations/instances_train*.json nor train/_annotations.coco.json", config.path);

  ImageParts parts;
  const auto cache = std::make_shared<const ImageCache>(config.cache_dir, parts.notices);
  const bool skip = config.broken == "skip";
  const auto training = [=, part = *found[0], notices = parts.notices,
                         open = std::make_shared<std::shared_ptr<const CocoImages>>()] {
    if (!*open) *open = std::make_shared<CocoImages>(files, part, nullptr, skip, cache, *notices);
    return *open;
  };
  parts.training = training;
  const auto other = [&](const std::optional<CocoPart>& part) -> ImageParts::Open {
    if (!part) return {};
    return [=, part = *part, notices = parts.notices] {
      return std::make_shared<CocoImages>(files, part, training().get(), skip, cache, *notices);
    };
  };
  parts.validation = other(found[1]);
  parts.test = other(found[2]);
  return parts;
}

}  // namespace elinvar
