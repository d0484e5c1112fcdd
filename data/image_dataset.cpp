#include "data/image_dataset.h"

#include <utility>

#include "data/transform.h"

namespace elinvar {
namespace {

class ImageDataset final : public Dataset {
 public:
  ImageDataset(const DataConfig& config, const ImageParts& parts, const PixelStatistics& usual, ImageSourcePtr source)
      : images_(std::move(source), config.broken == "skip", parts.notices),
        transform_(config, first_image(Image()), usual) {}

  int64_t size() const override { return source().size(); }
  SampleFormat format() const override {
    return {.inputs = {{transform_.output_shape(), DType::f32}}, .target = {Shape{}, DType::i64}};
  }
  int64_t classes() const override { return source().classes(); }
  const std::vector<std::string>& class_names() const override { return source().class_names(); }

  void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const override {
    Image scratch;
    const WholeImage found = images_.image(index, scratch);
    transform_(
        found.view, index, draw, [&] { return source().where(found.index); }, sample.input<float>());
    *sample.target<int64_t>() = source().label(found.index);
  }

  void describe(Hasher& hasher) const override {
    transform_.describe(hasher);
    hasher.add_integer(size());
    for (const std::string& name : class_names()) hasher.add(name);
    for (int64_t i = 0; i < size(); ++i) {
      hasher.add_integer(source().label(i));
      source().describe(i, hasher);
    }
  }

  std::vector<std::string> take_notices() const override { return images_.take_notices(); }

 private:
  const ImageSource& source() const { return images_.source(); }
  ImageView first_image(Image&& scratch) const { return images_.image(0, scratch).view; }

  WholeImages images_;
  ImageTransform transform_;
};

}  // namespace

std::unique_ptr<Dataset> open_image_dataset(const DataConfig& config, const ImageParts& parts,
                                            const PixelStatistics& usual, Split split) {
  return std::make_unique<ImageDataset>(config, parts, usual, images_of_split(config, parts, split));
}

}  // namespace elinvar
