#include "data/tensor_dataset.h"

#include <cstring>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

Shape sample_shape(const Tensor& tensor) {
  Shape shape = tensor.shape();
  shape.erase(0);
  return shape;
}

class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(TensorSamples samples)
      : targets_(samples.targets.to(Device{}).to_contiguous()),
        classes_(samples.classes),
        class_names_(std::move(samples.class_names)),
        tokenizer_(std::move(samples.tokenizer)) {
    inputs_.push_back(samples.inputs.to(Device{}).to_contiguous());
    for (const Tensor& further : samples.further_inputs) inputs_.push_back(further.to(Device{}).to_contiguous());
    samples.symbols.resize(inputs_.size());
    samples.most_ids.resize(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i)
      format_.inputs.push_back({sample_shape(inputs_[i]), inputs_[i].dtype(), std::move(samples.symbols[i]),
                                std::move(samples.most_ids[i])});
    format_.target = {sample_shape(targets_), targets_.dtype()};
  }

  int64_t size() const override { return targets_.dim(0); }
  SampleFormat format() const override { return format_; }
  int64_t classes() const override { return classes_; }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string tokenizer_json() const override { return tokenizer_ ? tokenizer_() : ""; }

  void read(int64_t index, const Draw&, const SampleBuffers& sample) const override {
    for (size_t i = 0; i < inputs_.size(); ++i) copy_sample(inputs_[i], index, sample.inputs[i]);
    copy_sample(targets_, index, sample.to_target);
  }

  void describe(Hasher& hasher) const override {
    const auto add = [&](const Tensor& tensor) {
      hasher.add(std::string_view(name_of(tensor.dtype())));
      for (const int64_t extent : tensor.shape()) hasher.add_integer(extent);
      hasher.add(tensor.raw(), static_cast<size_t>(tensor.bytes()));
    };
    add(inputs_[0]);
    add(targets_);
    for (size_t i = 1; i < inputs_.size(); ++i) add(inputs_[i]);
    for (const Field& field : format_.inputs) {
      for (const int64_t symbols : field.symbols) hasher.add_integer(symbols);
      for (const int64_t most : field.most_ids) hasher.add_integer(most);
    }
    hasher.add_integer(classes_);
  }

 private:
  static void copy_sample(const Tensor& all, int64_t index, void* to) {
    const auto bytes = static_cast<size_t>(all.bytes() / all.dim(0));
    std::memcpy(to, static_cast<const char*>(all.raw()) + static_cast<size_t>(index) * bytes, bytes);
  }

  std::vector<Tensor> inputs_;
  Tensor targets_;
  int64_t classes_;
  std::vector<std::string> class_names_;
  std::function<std::string()> tokenizer_;
  SampleFormat format_;
};

std::string described(const Tensor& tensor) {
  return tensor.defined() ? fmt::format("{} {}", name_of(tensor.dtype()), to_string(tensor.shape())) : "nothing";
}

bool is_input(const Tensor& tensor) {
  return tensor.defined() && tensor.ndim() >= 2 && (tensor.dtype() == DType::f32 || tensor.dtype() == DType::i32);
}

}  // namespace

std::unique_ptr<Dataset> tensor_dataset(TensorSamples samples) {
  const Tensor &inputs = samples.inputs, &targets = samples.targets;
  check(is_input(inputs), "[tensor_dataset] inputs must be (samples, ..) of float32 or int32, got {}",
        described(inputs));
  const bool numbers = targets.defined() && targets.dtype() == DType::f32;
  check(targets.defined() && targets.ndim() >= 1 && (numbers || targets.dtype() == DType::i64),
        "[tensor_dataset] targets must be (samples) or (samples, T) of int64, or numbers of float32, got {}",
        described(targets));
  check(inputs.dim(0) == targets.dim(0) && inputs.dim(0) > 0,
        "[tensor_dataset] expected as many targets as inputs, and at least one, got {} and {}", inputs.dim(0),
        targets.dim(0));
  for (const Tensor& further : samples.further_inputs)
    check(is_input(further) && further.dim(0) == inputs.dim(0),
          "[tensor_dataset] further inputs must be ({}, ..) of float32 or int32, got {}", inputs.dim(0),
          described(further));
  for (const size_t described : {samples.symbols.size(), samples.most_ids.size()})
    check(described <= 1 + samples.further_inputs.size(), "[tensor_dataset] symbols of {} inputs, but there are {}",
          described, 1 + samples.further_inputs.size());
  check(numbers || samples.classes > 0, "[tensor_dataset] classes must be at least 1, got {}", samples.classes);
  return std::make_unique<TensorDataset>(std::move(samples));
}

}  // namespace elinvar
