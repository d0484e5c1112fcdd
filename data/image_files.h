#pragma once
// Images to classify: files that are given by name, prepared as a validation split prepares its images.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/files.h"
#include "data/transform.h"

namespace elinvar {

// What a network must know of the data that it was trained on to classify other images.
struct SampleForm {
  Shape shape = {};  // of one sample: (H, W, C)
  int64_t classes = 0;
  std::vector<std::string> class_names = {};  // may be empty
};
SampleForm form_of(const Dataset& dataset);

// Whether the kind of data has images that files can replace: every built-in kind of images.
bool has_images(const DataConfig& config);

// The samples are all images, in the order of `paths`; those of a folder or .tar in the order of their sorted names.
// With image_size = 0 an image is scaled to the square that the network sees; a network that sees a rectangle needs
// images of its size. An image that cannot be read gives zeros, and failure() says why.
class ImageFiles final : public Dataset {
 public:
  // Throws UsageError for a path that does not exist, for a folder without images, for a kind of data that has no
  // images, and for a form whose images no file can have.
  ImageFiles(const DataConfig& config, SampleForm form, const std::vector<std::string>& paths);

  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  Shape input_shape() const override { return form_.shape; }
  DType input_dtype() const override { return DType::f32; }
  Shape target_shape() const override { return {}; }
  int64_t classes() const override { return form_.classes; }
  const std::vector<std::string>& class_names() const override { return form_.class_names; }
  void read(int64_t index, const Draw& draw, void* input, int64_t* target) const override;  // every label is 0
  void describe(Hasher& hasher) const override;

  std::string name(int64_t index) const;
  // Returns why an image could not be read; "" if it was read, or not yet.
  std::string failure(int64_t index) const;

 private:
  struct Item {
    std::shared_ptr<const FileSet> files;  // an archive that has it; null: a file of its own
    std::string path;
  };
  void add_all_of(const std::string& path, bool folder);

  SampleForm form_;
  ImageTransform transform_;
  bool as_stored_;
  std::vector<Item> items_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::string> failures_;
};

}  // namespace elinvar
