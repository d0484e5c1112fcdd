#include "data/image_source.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

class Subset final : public ImageSource {
 public:
  Subset(ImageSourcePtr source, std::vector<int64_t> indices)
      : source_(std::move(source)), indices_(std::move(indices)) {}
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  int64_t label(int64_t i) const override { return source_->label(at(i)); }
  std::span<const ImageBox> boxes(int64_t i) const override { return source_->boxes(at(i)); }
  ImageView image(int64_t i, Image& scratch) const override { return source_->image(at(i), scratch); }
  std::string where(int64_t i) const override { return source_->where(at(i)); }
  bool in_memory() const override { return source_->in_memory(); }
  int64_t classes() const override { return source_->classes(); }
  const std::vector<std::string>& class_names() const override { return source_->class_names(); }
  void describe(int64_t i, Hasher& hasher) const override { source_->describe(at(i), hasher); }

 private:
  int64_t at(int64_t i) const { return indices_[static_cast<size_t>(i)]; }
  ImageSourcePtr source_;
  std::vector<int64_t> indices_;
};

class Kept final : public ImageSource {
 public:
  Kept(ImageSourcePtr source, std::vector<Image> images) : source_(std::move(source)), images_(std::move(images)) {}
  int64_t size() const override { return source_->size(); }
  int64_t label(int64_t i) const override { return source_->label(i); }
  std::span<const ImageBox> boxes(int64_t i) const override { return source_->boxes(i); }
  ImageView image(int64_t i, Image& scratch) const override {
    const Image& kept = images_[static_cast<size_t>(i)];
    return kept.pixels.empty() ? source_->image(i, scratch) : kept.view();  // image() throws for a broken image
  }
  std::string where(int64_t i) const override { return source_->where(i); }
  bool in_memory() const override { return true; }
  int64_t classes() const override { return source_->classes(); }
  const std::vector<std::string>& class_names() const override { return source_->class_names(); }
  void describe(int64_t i, Hasher& hasher) const override { source_->describe(i, hasher); }

 private:
  ImageSourcePtr source_;
  std::vector<Image> images_;
};

}  // namespace

const std::vector<std::string>& ImageSource::class_names() const {
  static const std::vector<std::string> none;
  return none;
}

WholeImage first_whole(const ImageSource& source, int64_t i, Image& scratch,
                       const std::function<void(int64_t, const BrokenImage&)>& broken) {
  constexpr int64_t kMostInARow = 1000;
  for (int64_t tries = 1;; ++tries, i = (i + 1) % source.size()) {
    try {
      return {i, source.image(i, scratch)};
    } catch (const BrokenImage& failure) {
      if (broken) broken(i, failure);
      if (tries == std::min(source.size(), kMostInARow))
        fail("[data] {} images in a row are broken, the last: {}", tries, failure.what());
    }
  }
}

WholeImage WholeImages::image(int64_t index, Image& scratch) const {
  if (!replace_) return {index, source_->image(index, scratch)};
  return first_whole(*source_, index, scratch, [&](int64_t i, const BrokenImage& failure) {
    const std::lock_guard lock(mutex_);
    if (!broken_.insert(i).second) return;
    notices_->add(
        fmt::format("{}; the next image stands in for it ({} left out so far)", failure.what(), broken_.size()));
  });
}

ImageSourcePtr subset(ImageSourcePtr source, std::vector<int64_t> indices) {
  return std::make_shared<Subset>(std::move(source), std::move(indices));
}

ImageSourcePtr kept_in_memory(ImageSourcePtr source, int64_t most_bytes, bool broken_too) {
  if (source->in_memory() || source->size() == 0) return source;
  Image scratch;
  const ImageView first = broken_too ? first_whole(*source, 0, scratch).view : source->image(0, scratch);
  if (first.bytes() > most_bytes / source->size()) return source;

  std::vector<Image> images(static_cast<size_t>(source->size()));
  std::atomic<int64_t> bytes{0};
  std::mutex mutex;
  int64_t failed = source->size();  // the first unreadable image in index order, whichever thread read it
  std::exception_ptr error;
  const auto note_error = [&](int64_t i) {
    const std::lock_guard lock(mutex);
    if (i >= failed) return;
    failed = i;
    error = std::current_exception();
  };
  cpu_stream().parallel_for(source->size(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && bytes <= most_bytes; ++i) {
      Image& own = images[static_cast<size_t>(i)];
      try {
        const ImageView view = source->image(i, own);
        if (view.pixels != own.pixels.data()) {
          own = Image(view.height, view.width, view.channels);
          std::copy_n(view.pixels, own.pixels.size(), own.pixels.data());
        }
        bytes += view.bytes();
      } catch (const BrokenImage&) {
        own = {};
        if (broken_too) continue;
        return note_error(i);
      } catch (...) {
        return note_error(i);
      }
    }
  });
  if (bytes > most_bytes) return source;
  if (error) std::rethrow_exception(error);
  return std::make_shared<Kept>(std::move(source), std::move(images));
}

}  // namespace elinvar
