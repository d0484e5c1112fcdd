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
      : inputs_(samples.inputs.to(Device{}).to_contiguous()),
        targets_(samples.targets.to(Device{}).to_contiguous()),
        classes_(samples.classes),
        class_names_(std::move(samples.class_names)),
        input_shape_(sample_shape(inputs_)),
        target_shape_(sample_shape(targets_)) {}

  int64_t size() const override { return inputs_.dim(0); }
  Shape input_shape() const override { return input_shape_; }
  DType input_dtype() const override { return inputs_.dtype(); }
  Shape target_shape() const override { return target_shape_; }
  int64_t classes() const override { return classes_; }
  const std::vector<std::string>& class_names() const override { return class_names_; }

  void read(int64_t index, const Draw&, void* input, int64_t* target) const override {
    const auto bytes = static_cast<size_t>(input_shape_.numel() * size_of(inputs_.dtype()));
    const auto count = static_cast<size_t>(target_shape_.numel());
    std::memcpy(input, static_cast<const char*>(inputs_.raw()) + static_cast<size_t>(index) * bytes, bytes);
    std::memcpy(target, targets_.data<int64_t>() + static_cast<size_t>(index) * count, count * sizeof(int64_t));
  }

  void describe(Hasher& hasher) const override {
    for (const Tensor* tensor : {&inputs_, &targets_}) {
      hasher.add(std::string_view(name_of(tensor->dtype())));
      for (const int64_t extent : tensor->shape()) hasher.add_integer(extent);
      hasher.add(tensor->raw(), static_cast<size_t>(tensor->bytes()));
    }
    hasher.add_integer(classes_);
  }

 private:
  Tensor inputs_, targets_;
  int64_t classes_;
  std::vector<std::string> class_names_;
  Shape input_shape_, target_shape_;
};

}  // namespace

std::unique_ptr<Dataset> tensor_dataset(TensorSamples samples) {
  const Tensor &inputs = samples.inputs, &targets = samples.targets;
  check(inputs.defined() && inputs.ndim() >= 2 && (inputs.dtype() == DType::f32 || inputs.dtype() == DType::i32),
        "[tensor_dataset] inputs must be (samples, ..) of float32 or int32, got {} {}",
        inputs.defined() ? name_of(inputs.dtype()) : "nothing", inputs.defined() ? to_string(inputs.shape()) : "");
  check(targets.defined() && targets.ndim() >= 1 && targets.dtype() == DType::i64,
        "[tensor_dataset] targets must be (samples) or (samples, T) of int64, got {} {}",
        targets.defined() ? name_of(targets.dtype()) : "nothing", targets.defined() ? to_string(targets.shape()) : "");
  check(inputs.dim(0) == targets.dim(0) && inputs.dim(0) > 0,
        "[tensor_dataset] expected as many targets as inputs, and at least one, got {} and {}", inputs.dim(0),
        targets.dim(0));
  check(samples.classes > 0, "[tensor_dataset] classes must be at least 1, got {}", samples.classes);
  return std::make_unique<TensorDataset>(std::move(samples));
}

}  // namespace elinvar
