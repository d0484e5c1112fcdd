#include "tools/training/observer.h"

#include <algorithm>

#include "data/text_pairs.h"
#include "tensor/base/activity.h"
#include "tensor/base/check.h"
#include "tools/training/text_generation.h"

namespace elinvar {

Image picture_of(const Tensor& pixels) {
  check(pixels.ndim() == 3 && (pixels.dim(2) == 1 || pixels.dim(2) == 3),
        "[picture] expected (height, width, 1 or 3 channels), got {}", to_string(pixels.shape()));
  const std::span<const float> values = pixels.span<float>();
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const float scale = *most > *least ? 255 / (*most - *least) : 0;
  Image image(pixels.dim(0), pixels.dim(1), pixels.dim(2));
  std::transform(values.begin(), values.end(), image.pixels.begin(), [low = *least, scale](float value) {
    return static_cast<uint8_t>(std::clamp((value - low) * scale + 0.5f, 0.0f, 255.0f));
  });
  return image;
}

Observer::Observer(const Training& training) : training_(training), config_(training.config().tensorboard) {
  const Dataset& data = *training.setup.data;
  const bool text = data.vocabulary() != nullptr;
  with_places(training.config().places, [&] {
    check_setting(config_.images_every == 0 || !text, "tensorboard.images_every", "the data are text, not images");
    if (config_.images_every > 0) {
      const int64_t channels = data.input_shape()[2];
      check_setting(channels == 1 || channels == 3, "tensorboard.images_every",
                    "images of 1 or 3 channels can be shown, these have {}", channels);
    }
    check_setting(config_.text_every == 0 || text, "tensorboard.text_every", "the data are images, not text");
    if (config_.text_every > 0) {
      check_setting(!config_.prompt.empty(), "tensorboard.prompt", "must not be empty: the text starts with it");
      (void)data.vocabulary()->encode_prompt(config_.prompt);
    }
  });
}

bool Observer::due(int64_t step) const {
  return elinvar::due(step, config_.histograms_every) || elinvar::due(step, config_.images_every) ||
         elinvar::due(step, config_.text_every);
}

std::string Observer::look(int64_t step, const Cursor& batch, const Reduced& reduced) const {
  const TimedActivity activity("a look at tensors");
  Summary summary;
  if (elinvar::due(step, config_.histograms_every)) add_histograms(summary, reduced);
  if (elinvar::due(step, config_.images_every)) add_images(summary, batch);
  if (elinvar::due(step, config_.text_every)) add_text(summary);
  return summary.bytes();
}

void Observer::add_histograms(Summary& summary, const Reduced& reduced) const {
  const std::vector<Parameter>& parameters = training_.setup.network->parameters.list;
  for (const Parameter& p : parameters)
    if (p.var.value().resident())  // no worker has them all with ZeRO-3
      summary.histogram("parameters/" + p.name, histogram_of(p.var.value().to(Device{}).to_contiguous().span<float>()));
  for (size_t i = 0; i < reduced.gradients.size(); ++i)  // none with ZeRO, where no worker has them all
    summary.histogram("gradients/" + parameters[i].name,
                      histogram_of(reduced.gradients[i].to(Device{}).to_contiguous().span<float>()));
}

// Adds the images as the data set gives them to the step.
void Observer::add_images(Summary& summary, const Cursor& batch) const {
  const Dataset& data = *training_.setup.data;
  const int64_t epoch = batch.samples / data.size(), first = batch.samples % data.size();
  const int64_t count = std::min(config_.images, training_.loader.samples(batch));
  const Draw draw{.seed = training_.config().run.seed, .epoch = epoch, .augment = true};
  Tensor pixels = Tensor::empty(data.input_shape());
  std::vector<int64_t> target(static_cast<size_t>(data.target_shape().numel()));
  for (int64_t i = 0; i < count; ++i) {
    data.read(training_.loader.index(epoch, first + i), draw, {pixels.raw(), target.data()});
    summary.image(fmt::format("inputs/{}", i), picture_of(pixels));
  }
}

void Observer::add_text(Summary& summary) const {
  const TrainingSetup& setup = training_.setup;
  const Vocabulary& vocabulary = *setup.data->vocabulary();
  TextGenerator generator(setup, vocabulary.encode_prompt(config_.prompt), {.seed = training_.config().run.seed});
  std::string text = config_.prompt;
  const std::optional<PairsForm> pairs = form_of_pairs(*setup.data);
  if (pairs) text += "\n";
  for (int64_t i = 0; i < (pairs ? std::min(config_.text_tokens, pairs->target) : config_.text_tokens); ++i) {
    const int32_t token = generator.next();
    if (pairs && generator.ends(token)) break;
    text += vocabulary.decode(token);
  }
  summary.text("text", text);
}

}  // namespace elinvar
