#include "data/image_files.h"

#include <algorithm>
#include <filesystem>

#include "data/image_source.h"
#include "data/mask_dataset.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

// Sets image_size, so that files of any size are scaled, if the data set's images are squares of one size.
DataConfig with_size(DataConfig config, const Shape& shape) {
  if (config.image_size == 0 && shape[0] == shape[1]) config.image_size = shape[0];
  return config;
}

}  // namespace

SampleForm form_of(const Dataset& dataset) {
  return {.shape = dataset.input_shape(), .classes = dataset.classes(), .class_names = dataset.class_names()};
}

bool has_images(const DataConfig& config) { return usual_pixels(config).has_value(); }

ImageFiles::ImageFiles(const DataConfig& config, SampleForm form, const std::vector<std::string>& paths)
    : form_(std::move(form)),
      as_stored_(config.image_size == 0 && form_.shape[0] != form_.shape[1]),
      masks_(has_masks(config)) {
  check(has_images(config) && form_.shape.ndim() == 3, "[image files] data of kind '{}' are no images", config.kind);
  const int64_t channels = form_.shape[2];
  check(channels == 1 || channels == 3, "the network sees images of {} channels; those of files have 1 or 3", channels);
  const PixelStatistics usual = usual_pixels(config).value();
  if (has_boxes(config)) {
    target_ = {{config.boxes, kBoxTargetNumbers}, DType::f32};
    letterbox_.emplace(config, usual);
  } else {
    target_ = {masks_ ? Shape{form_.shape[0], form_.shape[1]} : Shape{}, DType::i64};
    const ImageView stored{.height = form_.shape[0], .width = form_.shape[1], .channels = channels};
    transform_.emplace(with_size(config, form_.shape), stored, usual);
  }
  for (const std::string& path : paths) {
    std::error_code error;
    check(fs::exists(path, error), "there is no {}", path);
    const bool folder = fs::is_directory(path, error);
    if (folder || fs::path(path).extension() == ".tar") add_all_of(path, folder);
    else items_.push_back({nullptr, path});
  }
}

void ImageFiles::add_all_of(const std::string& path, bool folder) {
  const std::shared_ptr<const FileSet> files = open_files(path);
  const size_t before = items_.size();
  for (const FileSet::Entry& entry : files->entries())
    if (is_image_name(entry.path))
      items_.push_back(folder ? Item{nullptr, fs::path(path) / entry.path} : Item{files, entry.path});
  check(items_.size() > before, "{} has no .jpg, .jpeg or .png", path);
}

std::string ImageFiles::name(int64_t index) const {
  const Item& item = items_[static_cast<size_t>(index)];
  return item.files ? item.files->where(item.path) : item.path;
}

void ImageFiles::read(int64_t index, const Draw&, const SampleBuffers& sample) const {
  const Item& item = items_[static_cast<size_t>(index)];
  auto* pixels = sample.input<float>();
  if (letterbox_) write_box_targets({}, 1, sample.target<float>(), target_.shape[0]);
  else std::fill_n(sample.target<int64_t>(), target_.shape.numel(), masks_ ? kIgnoredClass : 0);
  try {
    const std::string bytes = item.files ? item.files->read(item.path) : read_file(item.path);
    const Image image = decode_image(bytes, static_cast<int>(form_.shape[2]), name(index));
    if (as_stored_ && (image.height != form_.shape[0] || image.width != form_.shape[1]))
      fail("'{}' is {} x {}, and the network sees images of {} x {}", name(index), image.height, image.width,
           form_.shape[0], form_.shape[1]);
    if (letterbox_) (*letterbox_)(image.view(), {}, index, {}, pixels, sample.target<float>(), target_.shape[0]);
    else
      (*transform_)(
          image.view(), index, {}, [&] { return name(index); }, pixels);
    if (!letterbox_ && !masks_) return;
    const std::lock_guard lock(mutex_);
    sides_[index] = {image.height, image.width};
  } catch (const Failure& failure) {
    std::fill_n(pixels, form_.shape.numel(), 0.0f);
    const std::lock_guard lock(mutex_);
    failures_.emplace(index, failure.what());
  }
}

void ImageFiles::describe(Hasher& hasher) const {
  if (letterbox_) letterbox_->describe(hasher);
  else transform_->describe(hasher);
  for (int64_t i = 0; i < size(); ++i) hasher.add(name(i));
}

ImageBox ImageFiles::in_image(int64_t index, const ImageBox& box) const {
  const std::lock_guard lock(mutex_);
  const Sides& sides = sides_.at(index);
  return letterbox_->in_image(box, sides.height, sides.width);
}

Image ImageFiles::classes_in_image(int64_t index, const std::vector<uint8_t>& classes) const {
  const std::lock_guard lock(mutex_);
  const Sides& sides = sides_.at(index);
  return transform_->classes_in_image(classes.data(), sides.height, sides.width);
}

std::string ImageFiles::failure(int64_t index) const {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(index);
  return found == failures_.end() ? "" : found->second;
}

}  // namespace elinvar
