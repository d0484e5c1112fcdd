// Texts that a network of pairs of texts writes for a source.
#include "tools/training/text_generation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/text_pairs.h"
#include "nn/micro_batch.h"

namespace elinvar {
namespace {

constexpr const char* kLettersJob = R"([run]
steps = 1
batch_size = 4
[model]
kind = "t5"
layers = 1
heads = 2
channels = 16
[data]
kind = "synthetic_pairs"
context = 8
target_context = 6
classes = 5
[optimizer]
kind = "adam"
)";

// The likeliest tokens by the whole network, with a padded source and a padded target.
std::vector<int32_t> likeliest_target(const TrainingSetup& setup, const std::vector<int32_t>& source) {
  const PairsForm form = form_of_pairs(*setup.data).value();
  Tensor from = Tensor::zeros({1, form.source}, DType::i32), to = Tensor::zeros({1, form.target}, DType::i32);
  std::ranges::copy(source, from.data<int32_t>());
  from.data<int32_t>()[source.size()] = form.end;
  to.data<int32_t>()[0] = form.start;
  const Inputs inputs(from, {to, Tensor::from(std::vector{static_cast<int32_t>(source.size()) + 1}, {1, 1})});
  std::vector<int32_t> text;
  for (int64_t t = 0; t < form.target; ++t) {
    const Tensor logits = predict(*setup.network, std::span(&inputs, 1));
    const float* const row = logits.data<float>() + t * logits.dim(2);
    text.push_back(static_cast<int32_t>(std::max_element(row, row + logits.dim(2)) - row));
    if (t + 1 < form.target) to.data<int32_t>()[t + 1] = text.back();
  }
  return text;
}

TEST(TextGeneration, OfAPairIsThatOfItsSource) {
  const TrainingSetup setup(parse_config(kLettersJob, "letters.toml"), Split::train, Device{});
  for (Parameter& p : setup.network->parameters.list)  // so that the source decides much in a network without training
    if (p.name.find("EncDecAttention") != std::string::npos)
      for (float& x : p.var.mutable_value().span<float>()) x *= 4;
  std::vector<std::vector<int32_t>> texts;
  for (const std::vector<int32_t>& source : {std::vector<int32_t>{4, 0, 3}, {1, 1, 2, 0, 4, 3, 2}, {2}}) {
    TextGenerator generator(setup, source, {.sampling = {.temperature = 0}});
    std::vector<int32_t> text;
    for (int i = 0; i < 6; ++i) text.push_back(generator.next());
    EXPECT_EQ(text, likeliest_target(setup, source));
    generator.begin(1);
    EXPECT_EQ(generator.next(), text[0]) << "begins again";
    EXPECT_TRUE(generator.ends(5) && generator.ends(6) && !generator.ends(4)) << "the end, the start and a letter";
    texts.push_back(text);
  }
  EXPECT_TRUE(texts[0] != texts[1] || texts[0] != texts[2]) << "the source decides nothing";
}

}  // namespace
}  // namespace elinvar
