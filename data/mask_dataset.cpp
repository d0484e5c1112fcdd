#include "data/mask_dataset.h"

#include <utility>

#include "data/transform.h"
#include "tensor/base/setting.h"

namespace elinvar {
namespace {

class MaskDataset final : public Dataset {
 public:
  MaskDataset(const DataConfig& config, const ImageParts& parts, const PixelStatistics& usual, ImageSourcePtr source)
      : images_(std::move(source), config.broken == "skip", parts.notices),
        transform_(config, first_image(Image()), usual) {}

  int64_t size() const override { return source().size(); }
  SampleFormat format() const override {
    const Shape image = transform_.output_shape();
    return {.inputs = {{image, DType::f32}}, .target = {{image[0], image[1]}, DType::i64}};
  }
  int64_t classes() const override { return source().classes(); }

  void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const override {
    Image scratch;
    const WholeImage found = images_.image(index, scratch);
    transform_.with_classes(
        found.view, index, draw, [&] { return source().where(found.index); }, sample.input<float>(), kIgnoredClass,
        sample.target<int64_t>());
  }

  void describe(Hasher& hasher) const override {
    transform_.describe(hasher);
    for (const int64_t number : {size(), classes()}) hasher.add_integer(number);
    for (int64_t i = 0; i < size(); ++i) source().describe(i, hasher);
  }

  std::vector<std::string> take_notices() const override { return images_.take_notices(); }

 private:
  const ImageSource& source() const { return images_.source(); }
  // Only its size counts.
  ImageView first_image(Image&& scratch) const {
    const ImageView all = images_.image(0, scratch).view;
    return {nullptr, all.height, all.width, all.channels - 1};
  }

  WholeImages images_;
  ImageTransform transform_;
};

}  // namespace

std::unique_ptr<Dataset> open_mask_dataset(const DataConfig& config, const ImageParts& parts,
                                           const PixelStatistics& usual, Split split) {
  check_setting(config.classes >= 2 && config.classes <= kNoClass, "data.classes", "must be from 2 to {}, got {}",
                int{kNoClass}, config.classes);
  return std::make_unique<MaskDataset>(config, parts, usual, images_of_split(config, parts, split));
}

}  // namespace elinvar
