#include "tensor/tensor.h"

#include <algorithm>
#include <cstring>

#include "tensor/allocator.h"
#include "tensor/base/check.h"
#include "tensor/ops/copy.h"

namespace elinvar {

struct Tensor::Releasable {
  size_t bytes;
  std::shared_ptr<void> block;  // null while the elements are absent
};

Tensor Tensor::without_storage(const Shape& shape, DType dtype, Device device) {
  int64_t bytes = size_of(dtype);
  bool too_large = false;
  for (int64_t d : shape) {
    check(d >= 0, "[tensor] shape {} has a negative extent", to_string(shape));
    too_large = __builtin_mul_overflow(bytes, std::max<int64_t>(d, 1), &bytes) || too_large;
  }
  check(!too_large, "[tensor] shape {} is too large", to_string(shape));
  Tensor t;
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  t.device_ = device;
  return t;
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor t = without_storage(shape, dtype, device);
  t.storage_ = on(device, [&](auto& stream) { return allocate(stream, static_cast<size_t>(t.bytes())); });
  return t;
}

Tensor Tensor::absent(const Shape& shape, DType dtype, Device device) {
  Tensor t = without_storage(shape, dtype, device);
  t.storage_ = std::make_shared<Releasable>(Releasable{.bytes = static_cast<size_t>(t.bytes()), .block = nullptr});
  t.kind_ = StorageKind::releasable;
  return t;
}

Tensor::Releasable& Tensor::releasable() const {
  check(kind_ == StorageKind::releasable, "[tensor] only a tensor made by absent() can be released and restored");
  return *static_cast<Releasable*>(storage_.get());
}

void Tensor::restore() {
  Releasable& elements = releasable();
  if (!elements.block) elements.block = on(device_, [&](auto& stream) { return allocate(stream, elements.bytes); });
}

void Tensor::release() { releasable().block = nullptr; }

bool Tensor::resident() const { return kind_ != StorageKind::releasable || releasable().block != nullptr; }

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) { return full(shape, 0.0, dtype, device); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  fill(t, value);
  return t;
}

Tensor Tensor::scalar(double value, DType dtype, Device device) { return full({}, value, dtype, device); }

Tensor Tensor::from_bytes(const void* bytes, size_t count, DType dtype, const Shape& shape) {
  check(shape.numel() == static_cast<int64_t>(count), "[tensor] {} values do not fill shape {}", count,
        to_string(shape));
  Tensor t = empty(shape, dtype);
  if (count > 0) std::memcpy(t.raw(), bytes, static_cast<size_t>(t.bytes()));
  return t;
}

Tensor Tensor::over(std::shared_ptr<const void> owner, const void* elements, const Shape& shape, DType dtype) {
  Tensor t;
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  t.kind_ = StorageKind::borrowed;
  t.storage_ = std::shared_ptr<void>(std::make_shared<std::shared_ptr<const void>>(std::move(owner)),
                                     const_cast<void*>(elements));
  return t;
}

bool Tensor::contiguous() const {
  int64_t expected = 1;
  for (int i = ndim() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != expected) return shape_.numel() == 0;
    expected *= shape_[i];
  }
  return true;
}

void* Tensor::pointer() const {
  check(defined(), "[tensor] the tensor is undefined");
  void* first = storage_.get();
  if (kind_ == StorageKind::releasable) {
    first = static_cast<Releasable*>(first)->block.get();
    invariant(first != nullptr, "elements of a tensor are in memory while they are used");
  }
  return static_cast<char*>(first) + offset_ * size_of(dtype_);
}

void* Tensor::address(DType expected) const {
  check(dtype_ == expected, "[tensor] elements are {}, asked for as {}", name_of(dtype_), name_of(expected));
  check(device_.kind == DeviceKind::cpu, "[tensor] elements lie on {}: bring them here with to(Device{{}})",
        to_string(device_));
  return pointer();
}

int64_t Tensor::checked_numel() const {
  check(contiguous(), "[tensor] a span needs contiguous elements; call to_contiguous() first");
  return numel();
}

double Tensor::item() const {
  check(numel() == 1, "[item] one element expected, shape is {}", to_string(shape_));
  if (device_.kind != DeviceKind::cpu) return to(Device{}).item();
  return visit_dtype(dtype_, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, bf16>) return static_cast<double>(static_cast<float>(*data<T>()));
    else return static_cast<double>(*data<T>());
  });
}

Tensor Tensor::reshape(const Shape& wanted) const {
  Shape shape = wanted;
  int inferred = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.ndim(); ++i) {
    if (shape[i] == -1) {
      check(inferred < 0, "[reshape] only one extent can be -1, got {}", to_string(wanted));
      inferred = i;
    } else {
      check(shape[i] >= 0, "[reshape] shape {} has a negative extent", to_string(wanted));
      known *= shape[i];
    }
  }
  if (inferred >= 0) {
    check(known > 0, "[reshape] the -1 of {} has no one value for {} elements", to_string(wanted), numel());
    shape[inferred] = numel() / known;
  }
  check(shape.numel() == numel(), "[reshape] {} elements of shape {} do not fit shape {}", numel(), to_string(shape_),
        to_string(wanted));
  Tensor t = to_contiguous();
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  return t;
}

Tensor Tensor::permute(std::span<const int> dims) const {
  check(static_cast<int>(dims.size()) == ndim(), "[permute] {} dimensions given for shape {}", dims.size(),
        to_string(shape_));
  Tensor t = *this;
  unsigned seen = 0;
  for (int i = 0; i < ndim(); ++i) {
    const int d = normalize_dim(dims[static_cast<size_t>(i)], ndim(), "permute");
    check((seen >> d & 1u) == 0, "[permute] dimension {} is named twice", d);
    seen |= 1u << d;
    t.shape_[i] = shape_[d];
    t.strides_[i] = strides_[d];
  }
  return t;
}

Tensor Tensor::transpose(int a, int b) const {
  a = normalize_dim(a, ndim(), "transpose");
  b = normalize_dim(b, ndim(), "transpose");
  Tensor t = *this;
  std::swap(t.shape_[a], t.shape_[b]);
  std::swap(t.strides_[a], t.strides_[b]);
  return t;
}

Tensor Tensor::slice(int dim, int64_t begin, int64_t end, int64_t step) const {
  dim = normalize_dim(dim, ndim(), "slice");
  check(step >= 1, "[slice] step must be positive, got {}", step);
  check(0 <= begin && begin <= end && end <= shape_[dim], "[slice] [{}, {}) is not inside dimension {} of shape {}",
        begin, end, dim, to_string(shape_));
  Tensor t = *this;
  t.offset_ += begin * strides_[dim];
  t.shape_[dim] = (end - begin + step - 1) / step;
  t.strides_[dim] *= step;
  return t;
}

Tensor Tensor::select(int dim, int64_t index) const { return slice(dim, index, index + 1).squeeze(dim); }

Tensor Tensor::expand(const Shape& shape) const {
  check(broadcast(shape_, shape, "expand") == shape, "[expand] shape {} does not expand to {}", to_string(shape_),
        to_string(shape));
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = Shape::filled(shape.ndim(), 0);
  for (int i = 1; i <= ndim(); ++i)
    if (shape_[ndim() - i] == shape[shape.ndim() - i]) t.strides_[shape.ndim() - i] = strides_[ndim() - i];
  return t;
}

Tensor Tensor::unsqueeze(int dim) const {
  dim = normalize_dim(dim, ndim() + 1, "unsqueeze");
  Tensor t = *this;
  t.shape_.insert(dim, 1);
  t.strides_.insert(dim, 1);
  return t;
}

Tensor Tensor::squeeze(int dim) const {
  dim = normalize_dim(dim, ndim(), "squeeze");
  check(shape_[dim] == 1, "[squeeze] dimension {} of shape {} is not 1", dim, to_string(shape_));
  Tensor t = *this;
  t.shape_.erase(dim);
  t.strides_.erase(dim);
  return t;
}

Tensor Tensor::to_contiguous() const { return contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  Tensor t = empty(shape_, dtype_, device_);
  copy(*this, t);
  return t;
}

Tensor Tensor::to(Device device) const {
  if (device == device_) return *this;
  Tensor t = empty(shape_, dtype_, device);
  copy(*this, t);
  return t;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor t = empty(shape_, dtype, device_);
  copy(*this, t);
  return t;
}

}  // namespace elinvar
