#include "data/image_dataset.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "data/permutation.h"
#include "data/transform.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

class ImageDataset final : public Dataset {
 public:
  ImageDataset(const DataConfig& config, const ImageParts& parts, const PixelStatistics& usual, ImageSourcePtr source)
      : source_(std::move(source)),
        steps_over_broken_(config.broken == "skip"),
        notices_(parts.notices),
        transform_(config, first_image(Image()), usual.mean, usual.std) {}

  int64_t size() const override { return source_->size(); }
  SampleFormat format() const override {
    return {.inputs = {{transform_.output_shape(), DType::f32}}, .target = {Shape{}, DType::i64}};
  }
  int64_t classes() const override { return source_->classes(); }
  const std::vector<std::string>& class_names() const override { return source_->class_names(); }

  void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const override {
    Image scratch;
    const WholeImage found = image(index, scratch);
    transform_(
        found.view, index, draw, [&] { return source_->where(found.index); }, sample.input<float>());
    *sample.target<int64_t>() = source_->label(found.index);
  }

  void describe(Hasher& hasher) const override {
    transform_.describe(hasher);
    hasher.add_integer(size());
    for (const std::string& name : class_names()) hasher.add(name);
    for (int64_t i = 0; i < size(); ++i) {
      hasher.add_integer(source_->label(i));
      source_->describe(i, hasher);
    }
  }

  std::vector<std::string> take_notices() const override { return notices_->take(); }

 private:
  ImageView first_image(Image&& scratch) const { return image(0, scratch).view; }

  WholeImage image(int64_t index, Image& scratch) const {
    if (!steps_over_broken_) return {index, source_->image(index, scratch)};
    return first_whole(*source_, index, scratch, [&](int64_t i, const BrokenImage& failure) {
      const std::lock_guard lock(mutex_);
      if (!broken_.insert(i).second) return;
      notices_->add(
          fmt::format("{}; the next image stands in for it ({} left out so far)", failure.what(), broken_.size()));
    });
  }

  ImageSourcePtr source_;
  bool steps_over_broken_;
  std::shared_ptr<Notices> notices_;
  mutable std::mutex mutex_;
  mutable std::set<int64_t> broken_;  // broken images found so far
  ImageTransform transform_;
};

// Holds out `fraction` of the images, chosen by a fixed permutation; both parts keep their order.
ImageSourcePtr held_out(const ImageSourcePtr& source, double fraction, bool training) {
  const int64_t n = source->size(), held = static_cast<int64_t>(static_cast<double>(n) * fraction);
  check_setting(n == 0 || (held > 0 && held < n), "data.validation_fraction",
                "= {} of {} images leaves {} and {}; both must be more than none", fraction, n, n - held, held);
  const Permutation order(std::max<int64_t>(n, 1), key_of("data.held_out"), 0);
  std::vector<int64_t> indices;
  for (int64_t i = training ? held : 0; i < (training ? n : held); ++i) indices.push_back(order(i));
  std::sort(indices.begin(), indices.end());
  return subset(source, std::move(indices));
}

ImageSourcePtr choose(const DataConfig& config, const ImageParts& parts, Split split) {
  const ImageParts::Open& own = parts.validation ? parts.validation : parts.test;
  if (split == Split::test) {
    const ImageParts::Open& open = parts.test ? parts.test : parts.validation;
    check(open != nullptr, "[data] '{}' has no test images; split \"validation\" is held out of its training images",
          config.path);
    return open();
  }
  const bool apart = parts.apart || (config.validation_fraction == 0 && own);
  if (apart) return split == Split::train ? parts.training() : own();
  return held_out(parts.training(), config.validation_fraction == 0 ? 0.1 : config.validation_fraction,
                  split == Split::train);
}

}  // namespace

std::unique_ptr<Dataset> open_image_dataset(const DataConfig& config, const ImageParts& parts,
                                            const PixelStatistics& usual, Split split) {
  check_setting(config.cache_mb >= 0 && config.cache_mb <= int64_t{1} << 40, "data.cache_mb",
                "must be from 0 to 2^40, got {}", config.cache_mb);
  check_setting(config.broken == "error" || config.broken == "skip", "data.broken",
                "must be \"error\" or \"skip\", got \"{}\"", config.broken);
  ImageSourcePtr source = choose(config, parts, split);
  if (source->size() == 0) fail("[data] '{}' has no images for {}", config.path, name_of(split));
  return std::make_unique<ImageDataset>(
      config, parts, usual, kept_in_memory(std::move(source), config.cache_mb << 20, config.broken == "skip"));
}

}  // namespace elinvar
