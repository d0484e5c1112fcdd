#include "tools/training/text_generation.h"

#include "autograd/precision.h"
#include "tensor/base/check.h"

namespace elinvar {

TextGenerator::TextGenerator(const TrainingSetup& setup, std::vector<int32_t> tokens, const GenerationOptions& options)
    : tokens_(std::move(tokens)),
      given_(tokens_.size()),
      options_(options),
      context_(setup.data->input_shape()[0]),
      precision_(setup.precision == Precision::exact ? Precision::exact : Precision::portable),
      decoder_(*setup.network, context_, options.cached) {
  check(!tokens_.empty(), "[generation] at least one token expected that the text starts with");
}

int32_t TextGenerator::next() {
  const PrecisionScope products(precision_);
  const auto first = static_cast<size_t>(Decoder::first_seen(static_cast<int64_t>(tokens_.size()), context_));
  const Tensor logits = decoder_.logits(tokens_);
  const Rng rng{.seed = options_.seed, .step = made_++, .vrank = number_, .op = 0};
  tokens_.push_back(draw(logits, std::span(tokens_).subspan(first), options_.sampling, uniform01(rng.block(0).v[0])));
  return tokens_.back();
}

void TextGenerator::begin(uint32_t number) {
  tokens_.resize(given_);
  number_ = number;
  made_ = 0;
}

}  // namespace elinvar
