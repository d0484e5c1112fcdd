// Images in folders named by their class, on disk or in a tar.
#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>

#include "data/files.h"
#include "data/image_cache.h"
#include "data/image_source.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

// Returns what follows the last dot, in lower case.
std::string suffix_of(std::string_view path) {
  std::string end(path.substr(path.rfind('.') + 1));
  for (char& c : end) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return end;
}

// Whether the file is an image of a format that is not read.
bool is_other_image(std::string_view path) {
  constexpr std::string_view kFormats[] = {"webp", "gif", "bmp", "tif", "tiff", "avif", "heic", "jp2", "jxl", "ppm"};
  return std::ranges::find(kFormats, suffix_of(path)) != std::end(kFormats);
}

// Whether the path has a part that begins with a dot, or with "__" as what macOS adds to archives.
bool is_hidden(std::string_view path) {
  return path.starts_with(".") || path.starts_with("__") || path.find("/.") != path.npos ||
         path.find("/__") != path.npos;
}

// The images under one folder of the set, "<root><class>/...".
class FolderImages final : public ImageSource {
 public:
  // `class_names` are those of the training part. For the training part itself they are empty, and it finds them: every
  // folder with images is a class. One with images of other formats alone is an error; other files are counted in a
  // notice.
  FolderImages(std::shared_ptr<const FileSet> files, const std::string& root, std::vector<std::string> class_names,
               std::shared_ptr<const ImageCache> cache, Notices& notices)
      : files_(std::move(files)), class_names_(std::move(class_names)), cache_(std::move(cache)) {
    const auto& entries = files_->entries();
    const auto class_of = [&](const std::string& path) {
      return path.substr(root.size(), path.find('/', root.size()) - root.size());
    };
    std::vector<size_t> images;
    std::vector<std::string> others;
    for (size_t e = 0; e < entries.size(); ++e) {
      const std::string& path = entries[e].path;
      if (!path.starts_with(root)) continue;
      if (!is_image_name(path)) {
        if (path.find('/', root.size()) != path.npos && !is_hidden(path)) others.push_back(path);
        continue;
      }
      if (path.find('/', root.size()) == path.npos)
        fail("[image_folder] '{}' lies in no folder of a class; expected {}<class>/<name>", files_->where(path), root);
      images.push_back(e);
    }
    if (class_names_.empty()) {
      for (size_t e : images) class_names_.push_back(class_of(entries[e].path));
      std::sort(class_names_.begin(), class_names_.end());
      class_names_.erase(std::unique(class_names_.begin(), class_names_.end()), class_names_.end());
      for (const std::string& path : others)
        if (is_other_image(path) && !std::binary_search(class_names_.begin(), class_names_.end(), class_of(path)))
          fail(
              "[image_folder] the class '{}' has no .jpg, .jpeg or .png, only files such as '{}'; convert them, or "
              "move the folder away",
              class_of(path), files_->where(path));
    }
    if (!others.empty())
      notices.add(
          fmt::format("[image_folder] {} skipped, because only .jpg, .jpeg and .png are read; the first is '{}'",
                      others.size() == 1 ? "1 file is" : fmt::format("{} files are", others.size()),
                      files_->where(others.front())));
    std::map<std::string, int64_t> label_of;
    for (const std::string& name : class_names_) label_of.emplace(name, static_cast<int64_t>(label_of.size()));
    for (size_t e : images) {
      const auto it = label_of.find(class_of(entries[e].path));
      if (it == label_of.end())
        fail(
            "[image_folder] '{}' is of a class that has no training images; classes are the {} folders beside it in "
            "training",
            files_->where(entries[e].path), class_names_.size());
      items_.push_back({e, it->second});
    }
  }

  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  int64_t label(int64_t i) const override { return items_[static_cast<size_t>(i)].label; }
  ImageView image(int64_t i, Image& scratch) const override {
    scratch = cache_->decode(files_->read(items_[static_cast<size_t>(i)].entry), 3, where(i));
    return scratch.view();
  }
  std::string where(int64_t i) const override { return files_->where(entry(i).path); }
  bool in_memory() const override { return false; }
  int64_t classes() const override { return static_cast<int64_t>(class_names_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  void describe(int64_t i, Hasher& hasher) const override {
    hasher.add(entry(i).path);
    hasher.add_integer(entry(i).size);
  }

 private:
  struct Item {
    size_t entry;
    int64_t label;
  };
  const FileSet::Entry& entry(int64_t i) const { return files_->entries()[items_[static_cast<size_t>(i)].entry]; }

  std::shared_ptr<const FileSet> files_;
  std::vector<std::string> class_names_;
  std::vector<Item> items_;
  std::shared_ptr<const ImageCache> cache_;
};

bool has_images(const FileSet& files, const std::string& root) {
  const auto& entries = files.entries();
  return std::any_of(entries.begin(), entries.end(),
                     [&](const auto& e) { return e.path.starts_with(root) && is_image_name(e.path); });
}

// Returns the single folder that contains all files, with its slash, or ""; tar archives often include the folder
// around them.
std::string common_folder(const FileSet& files) {
  const auto& entries = files.entries();
  const std::string folder = entries.front().path.substr(0, entries.front().path.find('/') + 1);
  return !folder.empty() && entries.back().path.starts_with(folder) ? folder : "";
}

}  // namespace

bool is_image_name(std::string_view path) {
  const std::string end = suffix_of(path);
  return end == "jpg" || end == "jpeg" || end == "png";
}

ImageParts open_image_folder(const DataConfig& config) {
  const std::shared_ptr<const FileSet> files = open_files(config.path);
  if (!has_images(*files, ""))
    fail("[image_folder] '{}' holds no .jpg, .jpeg or .png; expected <split>/<class>/<name>.jpg or <class>/<name>.jpg",
         config.path);

  std::string root = common_folder(*files);
  if (root == "train/" || !has_images(*files, root + "train/")) root = "";
  const bool split = has_images(*files, root + "train/");
  // Skips one folder around all classes, unless it is the only class.
  if (!split && !common_folder(*files).empty()) {
    const std::string folder = common_folder(*files);
    const auto& first = files->entries().front().path;
    if (first.find('/', folder.size()) != first.npos) root = folder;
  }

  ImageParts parts;
  const auto cache = std::make_shared<const ImageCache>(config.cache_dir, parts.notices);
  const std::string training = split ? root + "train/" : root;
  parts.training = [files, training, cache, notices = parts.notices,
                    open = std::make_shared<std::shared_ptr<FolderImages>>()] {
    if (!*open) *open = std::make_shared<FolderImages>(files, training, std::vector<std::string>{}, cache, *notices);
    return *open;
  };
  const auto other = [&](std::initializer_list<const char*> names) -> ImageParts::Open {
    for (const char* name : names)
      if (const std::string folder = root + name; split && has_images(*files, folder))
        return [files, folder, cache, notices = parts.notices, open = parts.training] {
          return std::make_shared<FolderImages>(files, folder, open()->class_names(), cache, *notices);
        };
    return {};
  };
  parts.validation = other({"val/", "validation/", "valid/"});
  parts.test = other({"test/"});
  return parts;
}

}  // namespace elinvar
