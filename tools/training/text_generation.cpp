#include "tools/training/text_generation.h"

#include <algorithm>
#include <utility>

#include "autograd/precision.h"
#include "data/text_pairs.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

// A network of pairs of texts as a language model of the targets of one source.
class GivenSource final : public Network {
 public:
  GivenSource(const Network& network, std::vector<int32_t> source, const PairsForm& form) : network_(network) {
    source.push_back(form.end);
    source.resize(std::min(source.size(), static_cast<size_t>(form.source)));
    const auto count = static_cast<int64_t>(source.size());
    source_ = Tensor::from(source, {1, count});
    length_ = Tensor::from(std::vector<int32_t>{static_cast<int32_t>(count)}, {1, 1});
  }
  Var forward(const Tensor& target, Context& context) const override {
    context.inputs = {target, length_};
    return network_.forward(source_, context);
  }
  bool continues() const override { return network_.continues(); }

 private:
  const Network& network_;
  Tensor source_, length_;
};

std::unique_ptr<Network> given_source(const TrainingSetup& setup, const std::vector<int32_t>& source) {
  const std::optional<PairsForm> form = form_of_pairs(*setup.data);
  return form ? std::make_unique<GivenSource>(*setup.network, source, *form) : nullptr;
}

}  // namespace

TextGenerator::TextGenerator(const TrainingSetup& setup, std::vector<int32_t> tokens, const GenerationOptions& options)
    : of_source_(given_source(setup, tokens)),
      tokens_(of_source_ ? std::vector{form_of_pairs(*setup.data)->start} : std::move(tokens)),
      given_(tokens_.size()),
      options_(options),
      context_(of_source_ ? form_of_pairs(*setup.data)->target : setup.data->input_shape()[0]),
      symbols_(setup.data->vocabulary()->size()),
      end_(setup.data->vocabulary()->end_of_text()),
      precision_(setup.precision == Precision::exact ? Precision::exact : Precision::portable),
      decoder_(of_source_ ? *of_source_ : *setup.network, context_, options.cached) {
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
