#pragma once
// Image files to classify, or in which to find boxes or the class of each pixel. They are prepared as the images of a
// validation split are.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/files.h"
#include "data/letterbox.h"
#include "data/transform.h"

namespace elinvar {

// Describes the samples that a network was trained on, as far as it needs to classify other images.
struct SampleForm {
  Shape shape = {};  // of one sample: (H, W, C)
  int64_t classes = 0;
  std::vector<std::string> class_names = {};  // may be empty
};
SampleForm form_of(const Dataset& dataset);

// Returns whether config.kind is a built-in kind of images; image files can replace those of its data set.
bool has_images(const DataConfig& config);

// A data set of image files, in the order of `paths`. A path may be a folder or a .tar archive, whose images are sorted
// by name. If config.image_size is 0 and the network's input is square, images are scaled to it; if the input is not
// square, images must have its size. An image that cannot be read becomes zeros, and failure() returns the reason.
class ImageFiles final : public Dataset {
 public:
  // Throws UsageError if a path does not exist, a folder has no images, config.kind has no images, or form has neither
  // 1 nor 3 channels.
  ImageFiles(const DataConfig& config, SampleForm form, const std::vector<std::string>& paths);

  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  SampleFormat format() const override { return {.inputs = {{form_.shape, DType::f32}}, .target = target_}; }
  int64_t classes() const override { return form_.classes; }
  const std::vector<std::string>& class_names() const override { return form_.class_names; }
  // Every label is 0, and there are no boxes and no classes of pixels.
  void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const override;
  void describe(Hasher& hasher) const override;

  std::string name(int64_t index) const;
  // Returns why an image could not be read; "" if it was read, or not yet.
  std::string failure(int64_t index) const;
  // Returns a box as pixels of an image that has been read. The box is in shares of the square's sides. The data must
  // have boxes.
  ImageBox in_image(int64_t index, const ImageBox& box) const;
  // Returns the classes of an image that has been read, in its size, from those of its sample; kNoClass where the
  // sample does not show it. The data must have masks.
  Image classes_in_image(int64_t index, const std::vector<uint8_t>& classes) const;

 private:
  struct Item {
    std::shared_ptr<const FileSet> files;  // an archive that has it; null: a file of its own
    std::string path;
  };
  void add_all_of(const std::string& path, bool folder);

  SampleForm form_;
  Field target_;
  std::optional<ImageTransform> transform_;  // of data with labels or masks
  std::optional<Letterbox> letterbox_;       // of data with boxes
  bool as_stored_, masks_;
  std::vector<Item> items_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::string> failures_;
  struct Sides {
    int64_t height, width;
  };
  mutable std::map<int64_t, Sides> sides_;  // of data with boxes or masks
};

}  // namespace elinvar
