#pragma once
// Where decoded images with labels come from: the part of an image dataset that differs between formats. Sources are
// immutable and thread-safe; scaling, augmentation and normalisation come after them (data/transform.h).
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/image.h"
#include "data/notices.h"

namespace elinvar {

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual int64_t size() const = 0;
  virtual int64_t label(int64_t i) const = 0;
  // Image i, either in memory that lives as long as the source, or decoded into `scratch`. Throws BrokenImage if its
  // file is at fault.
  virtual ImageView image(int64_t i, Image& scratch) const = 0;
  virtual std::string where(int64_t i) const = 0;  // for messages
  virtual bool in_memory() const = 0;
  virtual int64_t classes() const = 0;
  virtual const std::vector<std::string>& class_names() const = 0;
  virtual void describe(int64_t i, Hasher& hasher) const = 0;
};

using ImageSourcePtr = std::shared_ptr<const ImageSource>;

// A set of images as it is stored: each part is opened when it is asked for; all but training can be absent.
struct ImageParts {
  using Open = std::function<ImageSourcePtr()>;
  Open training, validation, test;
  std::vector<double> mean, std;  // the usual ones
  bool apart = false;             // validation is never held out of training, whatever the fraction
  std::shared_ptr<Notices> notices = std::make_shared<Notices>();
};

ImageParts open_cifar10(const DataConfig& config);
ImageParts open_mnist(const DataConfig& config);
ImageParts open_image_folder(const DataConfig& config);
ImageParts open_webdataset(const DataConfig& config);
ImageParts open_synthetic_images(const DataConfig& config);

struct WholeImage {
  int64_t index;
  ImageView view;
};
// Image i or, while that is broken, the next one (after the last, the first): which one, the files alone decide. Each
// that is broken is told. Failure if a thousand, or all, are broken in a row.
WholeImage first_whole(const ImageSource& source, int64_t i, Image& scratch,
                       const std::function<void(int64_t, const BrokenImage&)>& broken = {});

// The images with the given indices, in that order.
ImageSourcePtr subset(ImageSourcePtr source, std::vector<int64_t> indices);

// The same images, decoded at once by all threads and kept, if that takes at most `most_bytes`; else the source itself.
// With `broken_too` images that are broken stay so, and are found out when they are asked for.
ImageSourcePtr kept_in_memory(ImageSourcePtr source, int64_t most_bytes, bool broken_too = false);

}  // namespace elinvar
