#pragma once
// A source of decoded images with labels, the part of an image dataset that differs between formats. Sources are
// immutable and thread-safe. Scaling, augmentation and normalisation follow in data/transform.h.
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/image.h"
#include "data/notices.h"

namespace elinvar {

// A box in an image, in pixels.
struct ImageBox {
  int64_t label;
  double x1, y1, x2, y2;  // left, top, right, bottom
};

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual int64_t size() const = 0;
  virtual int64_t label(int64_t i) const = 0;
  virtual std::span<const ImageBox> boxes(int64_t) const { return {}; }  // of a set that has boxes instead of labels
  // Returns image i, either in memory that lives as long as the source, or decoded into `scratch`. Throws BrokenImage
  // if its file is at fault.
  virtual ImageView image(int64_t i, Image& scratch) const = 0;
  virtual std::string where(int64_t i) const = 0;  // for messages
  virtual bool in_memory() const = 0;
  virtual int64_t classes() const = 0;
  virtual const std::vector<std::string>& class_names() const;  // empty unless a source overrides it
  virtual void describe(int64_t i, Hasher& hasher) const = 0;
};

using ImageSourcePtr = std::shared_ptr<const ImageSource>;

// A set of images as stored. Each part is opened when it is needed; all but training may be absent.
struct ImageParts {
  using Open = std::function<ImageSourcePtr()>;
  Open training, validation, test;
  bool apart = false;  // validation is never held out of training, whatever its fraction
  std::shared_ptr<Notices> notices = std::make_shared<Notices>();
};

// Opens a split as data/dataset.h says of all sets, and keeps its images in memory if they fit. Throws Failure if there
// are none, and SettingError for invalid settings.
ImageSourcePtr images_of_split(const DataConfig& config, const ImageParts& parts, Split split);

ImageParts open_cifar10(const DataConfig& config);
ImageParts open_mnist(const DataConfig& config);
ImageParts open_image_folder(const DataConfig& config);
ImageParts open_webdataset(const DataConfig& config);
ImageParts open_coco(const DataConfig& config);
ImageParts open_image_masks(const DataConfig& config);
ImageParts open_synthetic_images(const DataConfig& config);

// The usual mean and standard deviation of each channel of a kind's images, for pixels in [0, 1].
struct PixelStatistics {
  std::vector<double> mean, std;
};
// Returns the statistics of config.kind; nullopt if it has no images or is a registered kind.
std::optional<PixelStatistics> usual_pixels(const DataConfig& config);

// Returns whether the files of config.kind are images with boxes instead of labels.
inline bool has_boxes(const DataConfig& config) { return config.kind == "coco"; }
// The same of a class for each pixel.
inline bool has_masks(const DataConfig& config) { return config.kind == "image_masks"; }

// Returns whether the name ends in .jpg, .jpeg or .png: the formats that can be decoded.
bool is_image_name(std::string_view path);

struct WholeImage {
  int64_t index;
  ImageView view;
};
// Returns image i or, if it is broken, the next one that is not (after the last, the first), so that the choice depends
// on the files alone. Calls `broken` for each broken image. Throws Failure if a thousand in a row, or all, are broken.
WholeImage first_whole(const ImageSource& source, int64_t i, Image& scratch,
                       const std::function<void(int64_t, const BrokenImage&)>& broken = {});

// The images of a source in which the next one may replace a broken one, which is reported once.
class WholeImages {
 public:
  // A broken image is an error unless the next one is to `replace` it.
  WholeImages(ImageSourcePtr source, bool replace, std::shared_ptr<Notices> notices)
      : source_(std::move(source)), replace_(replace), notices_(std::move(notices)) {}

  const ImageSource& source() const { return *source_; }
  WholeImage image(int64_t index, Image& scratch) const;  // thread-safe
  std::vector<std::string> take_notices() const { return notices_->take(); }

 private:
  ImageSourcePtr source_;
  bool replace_;
  std::shared_ptr<Notices> notices_;
  mutable std::mutex mutex_;
  mutable std::set<int64_t> broken_;  // found so far
};

// A source of the images with the given indices, in that order.
ImageSourcePtr subset(ImageSourcePtr source, std::vector<int64_t> indices);

// Decodes all images with all threads and keeps them, if they take at most `most_bytes`; otherwise returns the source
// itself. With `broken_too`, a broken image throws only when it is requested.
ImageSourcePtr kept_in_memory(ImageSourcePtr source, int64_t most_bytes, bool broken_too = false);

}  // namespace elinvar
