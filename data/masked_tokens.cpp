#include "data/masked_tokens.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tensor/philox.h"

namespace elinvar {
namespace {

class MaskedTokens final : public Dataset {
 public:
  MaskedTokens(std::unique_ptr<Dataset> text, double share, bool as_input)
      : text_(std::move(text)), share_(share), as_input_(as_input), mask_(static_cast<int32_t>(text_->classes())) {}

  int64_t size() const override { return text_->size(); }
  SampleFormat format() const override {
    SampleFormat format = text_->format();
    if (as_input_) format.inputs.push_back({text_->input_shape(), DType::i32});
    return format;
  }
  int64_t classes() const override { return text_->classes() + 1; }
  const Vocabulary* vocabulary() const override { return text_->vocabulary(); }

  void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const override {
    text_->read(index, draw, {sample.inputs[0], sample.to_target});
    const uint64_t key = (draw.augment ? draw.seed : 0) ^ key_of("data.masking");
    const auto epoch = static_cast<uint32_t>(draw.augment ? draw.epoch : 0);
    auto* const tokens = sample.input<int32_t>();
    auto* const targets = sample.target<int64_t>();
    const int64_t length = text_->input_shape()[0];
    for (int64_t t = 0; t < length; ++t) {
      const Random4 words = philox(key, epoch, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                   static_cast<uint32_t>(t));
      targets[t] = kIgnoredTarget;
      if (uniform01(words.v[0]) >= static_cast<float>(share_)) continue;
      targets[t] = tokens[t];
      const float kind = uniform01(words.v[1]);
      if (kind < 0.8f) tokens[t] = mask_;
      else if (kind < 0.9f) tokens[t] = static_cast<int32_t>(random_below(words.v[2], mask_));
    }
    if (as_input_) std::copy_n(targets, length, sample.input<int32_t>(1));
  }

  void describe(Hasher& hasher) const override {
    text_->describe(hasher);
    hasher.add(std::string_view("masked"));
    hasher.add(&share_, sizeof share_);
    if (as_input_) hasher.add(std::string_view("as input"));
  }

 private:
  std::unique_ptr<Dataset> text_;
  double share_;
  bool as_input_;
  int32_t mask_;
};

}  // namespace

std::unique_ptr<Dataset> masked_tokens(std::unique_ptr<Dataset> text, double share, bool as_input) {
  return std::make_unique<MaskedTokens>(std::move(text), share, as_input);
}

}  // namespace elinvar
