#include "tools/bench/case_data.h"

#include "tensor/philox.h"

namespace elinvar::bench {
namespace {

constexpr int64_t kBoxes = 10, kLabels = 2;
constexpr float kMasked = 0.15f;

// Which random numbers a tensor has.
enum Stream : uint64_t { kInput = 1, kTarget, kSecondInput, kLengths };

Random4 words_of(Stream stream, int64_t i) { return philox(stream, static_cast<uint32_t>(i), 0, 0, 0); }
int64_t below(uint32_t bits, int64_t n) { return bits % static_cast<uint32_t>(n); }

Shape of_batch(Shape sample, int64_t batch) {
  sample.insert(0, batch);
  return sample;
}

Tensor random_numbers(const Shape& sample, int64_t batch) {
  Tensor x = Tensor::empty(of_batch(sample, batch));
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = 4.0f * uniform01(words_of(kInput, i).v[0]) - 2.0f;
  return x;
}

// Indices below the number of symbols of their column, which are as many as the last extent, or one for all.
Tensor random_indices(Stream stream, const Shape& sample, const std::vector<int64_t>& symbols, int64_t batch) {
  Tensor x = Tensor::empty(of_batch(sample, batch), DType::i32);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<int32_t>()[i] =
        static_cast<int32_t>(below(words_of(stream, i).v[0], symbols[static_cast<size_t>(i) % symbols.size()]));
  return x;
}

// From half of the longest to the longest.
Tensor random_lengths(int64_t longest, int64_t batch) {
  Tensor lengths = random_indices(kLengths, {1}, {longest - longest / 2 + 1}, batch);
  for (int64_t i = 0; i < batch; ++i) lengths.data<int32_t>()[i] += static_cast<int32_t>(longest / 2);
  return lengths;
}

Tensor random_classes(const Shape& sample, int64_t classes, bool masked, int64_t batch) {
  Tensor y = Tensor::empty(of_batch(sample, batch), DType::i64);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const Random4 words = words_of(kTarget, i);
    const bool ignored = masked && uniform01(words.v[1]) >= kMasked;
    y.data<int64_t>()[i] = ignored ? CrossEntropyOptions().ignore_index : below(words.v[0], classes);
  }
  return y;
}

// Boxes of half to all of the image's middle.
Tensor random_boxes(int64_t classes, int64_t batch) {
  Tensor y = Tensor::empty({batch, kBoxes, 5});
  for (int64_t i = 0; i < batch * kBoxes; ++i) {
    const Random4 words = words_of(kTarget, i);
    float* const box = y.data<float>() + 5 * i;
    box[0] = static_cast<float>(below(words.v[0], classes));
    for (int k = 1; k <= 2; ++k) box[k] = 0.25f + 0.5f * uniform01(words.v[k]);
    for (int k = 3; k <= 4; ++k) box[k] = 0.05f + 0.4f * uniform01(words.v[3] >> (8 * (k - 3)));
  }
  return y;
}

// Probabilities of 0 and 1.
Tensor random_clicks(int64_t batch) {
  Tensor y = Tensor::empty({batch, 1});
  for (int64_t i = 0; i < batch; ++i) y.data<float>()[i] = static_cast<float>(words_of(kTarget, i).v[0] % 2);
  return y;
}

// The first of the candidates is the one that was chosen.
Tensor first_chosen(int64_t candidates, int64_t batch) {
  Tensor y = Tensor::zeros({batch, candidates});
  for (int64_t i = 0; i < batch; ++i) y.data<float>()[i * candidates] = 1;
  return y;
}

bool takes_numbers(const ModelCase& c) { return !c.is_text() && c.data != CaseData::ratings; }

// The vocabulary, or the categories of each column.
std::vector<int64_t> symbols_of(const ModelCase& c) { return c.is_text() ? std::vector{c.classes} : c.symbols; }

std::vector<FurtherInput> further_of(const ModelCase& c) {
  const FurtherInput length{.sample = {1}, .dtype = DType::i32};
  switch (c.data) {
    case CaseData::replaced_text:
      return {{.sample = c.sample, .dtype = DType::i32}};
    case CaseData::labelled_text:
      return {length};
    case CaseData::text_pairs:
      return {{.sample = c.sample, .dtype = DType::i32, .symbols = {c.classes}}, length};
    case CaseData::table:
      return {{.sample = {static_cast<int64_t>(c.symbols.size())}, .dtype = DType::i32, .symbols = c.symbols}};
    default:
      return {};
  }
}

Tensor random_target(const ModelCase& c, int64_t batch) {
  switch (c.data) {
    case CaseData::boxes:
      return random_boxes(c.classes, batch);
    case CaseData::table:
      return random_clicks(batch);
    case CaseData::ratings:
      return first_chosen(c.sample[0], batch);
    default: {
      const bool masked = c.data == CaseData::masked_text || c.data == CaseData::replaced_text;
      const TargetInfo info = target_of(c);
      return random_classes(info.sample, info.classes, masked, batch);
    }
  }
}

}  // namespace

InputInfo input_of(const ModelCase& c, int64_t outputs) {
  InputInfo info{.sample = c.sample, .classes = outputs, .further = further_of(c)};
  if (takes_numbers(c)) return info;
  info.dtype = DType::i32;
  // A network that predicts tokens takes those that it predicts.
  if (c.data == CaseData::labelled_text || c.data == CaseData::text_pairs || c.data == CaseData::ratings)
    info.symbols = symbols_of(c);
  return info;
}

TargetInfo target_of(const ModelCase& c) {
  switch (c.data) {
    case CaseData::images:
      return {.classes = c.classes};
    case CaseData::boxes:
      return {.sample = {kBoxes, 5}, .dtype = DType::f32, .classes = c.classes};
    case CaseData::masks:
      return {.sample = {c.sample[0], c.sample[1]}, .classes = c.classes};
    case CaseData::labelled_text:
      return {.classes = kLabels};
    case CaseData::table:
      return {.sample = {1}, .dtype = DType::f32};
    case CaseData::ratings:
      return {.sample = {c.sample[0]}, .dtype = DType::f32};
    default:
      return {.sample = c.sample, .classes = c.classes};
  }
}

RandomBatch random_batch(const ModelCase& c, int64_t batch) {
  RandomBatch made{
      takes_numbers(c) ? random_numbers(c.sample, batch) : random_indices(kInput, c.sample, symbols_of(c), batch),
      random_target(c, batch)};
  std::vector<Tensor>& further = made.inputs.further;
  if (c.data == CaseData::replaced_text) further.push_back(made.target.to(DType::i32));
  if (c.data == CaseData::text_pairs) further.push_back(random_indices(kSecondInput, c.sample, symbols_of(c), batch));
  if (c.data == CaseData::labelled_text || c.data == CaseData::text_pairs)
    further.push_back(random_lengths(c.sample[0], batch));
  if (c.data == CaseData::table)
    further.push_back(random_indices(kSecondInput, {static_cast<int64_t>(c.symbols.size())}, c.symbols, batch));
  return made;
}

}  // namespace elinvar::bench
