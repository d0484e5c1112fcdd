#include "data/box_dataset.h"

#include <utility>

#include "data/letterbox.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"

namespace elinvar {
namespace {

class BoxDataset final : public Dataset {
 public:
  BoxDataset(const DataConfig& config, const ImageParts& parts, const PixelStatistics& usual, ImageSourcePtr source)
      : images_(std::move(source), config.broken == "skip", parts.notices),
        letterbox_(config, usual),
        rows_(config.boxes) {
    for (int64_t i = 0; i < size(); ++i)
      if (const auto boxes = std::ssize(this->source().boxes(i)); boxes > rows_)
        fail("[data] '{}' has {} boxes, and a sample at most data.boxes = {}", this->source().where(i), boxes, rows_);
  }

  int64_t size() const override { return source().size(); }
  SampleFormat format() const override {
    return {.inputs = {{{letterbox_.side(), letterbox_.side(), 3}, DType::f32}},
            .target = {{rows_, kBoxTargetNumbers}, DType::f32}};
  }
  int64_t classes() const override { return source().classes(); }
  const std::vector<std::string>& class_names() const override { return source().class_names(); }

  void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const override {
    Image scratch;
    const WholeImage found = images_.image(index, scratch);
    letterbox_(found.view, source().boxes(found.index), index, draw, sample.input<float>(), sample.target<float>(),
               rows_);
  }

  void describe(Hasher& hasher) const override {
    letterbox_.describe(hasher);
    for (const int64_t number : {size(), rows_}) hasher.add_integer(number);
    for (const std::string& name : class_names()) hasher.add(name);
    for (int64_t i = 0; i < size(); ++i) {
      source().describe(i, hasher);
      for (const ImageBox& box : source().boxes(i)) {
        hasher.add_integer(box.label);
        for (const double side : {box.x1, box.y1, box.x2, box.y2}) hasher.add(&side, sizeof side);
      }
    }
  }

  std::vector<std::string> take_notices() const override { return images_.take_notices(); }

 private:
  const ImageSource& source() const { return images_.source(); }

  WholeImages images_;
  Letterbox letterbox_;
  int64_t rows_;
};

}  // namespace

std::unique_ptr<Dataset> open_box_dataset(const DataConfig& config, const ImageParts& parts,
                                          const PixelStatistics& usual, Split split) {
  check_setting(config.boxes >= 1 && config.boxes <= kMostBoxesOfSample, "data.boxes", "must be from 1 to {}, got {}",
                kMostBoxesOfSample, config.boxes);
  return std::make_unique<BoxDataset>(config, parts, usual, images_of_split(config, parts, split));
}

}  // namespace elinvar
