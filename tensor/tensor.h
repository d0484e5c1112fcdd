#pragma once
// Tensor: a cheap handle on a strided view of shared storage. Copying a Tensor shares its elements; clone()
// copies them. Views (reshape of contiguous data, permute, slice, expand) share storage too.
//
//   Tensor x = Tensor::zeros({2, 3});
//   Tensor y = x.transpose(0, 1).slice(0, 1, 3);   // (2, 2), still the storage of x
//
// Reading from several threads is safe; writing needs an owner. Operations on tensors live in tensor/ops/.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/stream.h"

namespace elinvar {

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage; defined() is false

  // Contents unspecified / zero / all `value`.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
  // A copy of `values`, which must hold as many elements as the shape.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape) {
    return from_bytes(values.data(), values.size(), dtype_of<T>(), shape);
  }
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }
  static Tensor scalar(double value, DType dtype = DType::f32, Device device = {});
  // Returns a contiguous read-only view of foreign memory, which `owner` keeps alive; unique() is false.
  static Tensor over(std::shared_ptr<const void> owner, const void* elements, const Shape& shape, DType dtype);
  // Returns a tensor whose elements may be absent: they have no memory until restore() takes some, with unspecified
  // contents, nor after release(), which frees it. Both act on all handles and views, which stay valid, and both need
  // an owner. Using absent elements is an internal error. unique() is false.
  static Tensor absent(const Shape& shape, DType dtype = DType::f32, Device device = {});
  void restore();         // has no effect if the elements are there
  void release();         // has no effect if they are absent
  bool resident() const;  // whether the elements have memory, as those of other tensors always do

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  // in elements; 0 where expanded
  int ndim() const { return shape_.ndim(); }
  int64_t dim(int i) const { return shape_[normalize_dim(i, ndim(), "dim")]; }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  bool contiguous() const;
  bool shares_storage(const Tensor& other) const { return storage_ == other.storage_; }
  // Whether this handle is the only one on its storage, so that an operation may write its result into it.
  bool unique() const { return storage_.use_count() == 1 && kind_ == StorageKind::owned; }

  // Returns the first element. T must match the dtype, and the elements must be on the CPU.
  template <class T>
  T* data() {
    return static_cast<T*>(address(dtype_of<T>()));
  }
  template <class T>
  const T* data() const {
    return static_cast<const T*>(address(dtype_of<T>()));
  }
  void* raw() { return pointer(); }
  const void* raw() const { return pointer(); }
  template <class T>
  std::span<T> span() {
    return {data<T>(), static_cast<size_t>(checked_numel())};
  }  // contiguous only
  template <class T>
  std::span<const T> span() const {
    return {data<T>(), static_cast<size_t>(checked_numel())};
  }
  double item() const;  // the value of a one-element tensor of any dtype

  // Views. reshape takes one -1 (inferred) and copies what is not contiguous.
  Tensor reshape(const Shape& shape) const;
  Tensor permute(std::span<const int> dims) const;
  Tensor permute(std::initializer_list<int> dims) const { return permute({dims.begin(), dims.size()}); }
  Tensor transpose(int a, int b) const;
  Tensor slice(int dim, int64_t begin, int64_t end, int64_t step = 1) const;
  Tensor select(int dim, int64_t index) const;  // slice of one, dimension removed
  Tensor expand(const Shape& shape) const;      // dimensions of 1 (and new leading ones) repeat without a copy
  Tensor unsqueeze(int dim) const;
  Tensor squeeze(int dim) const;

  Tensor to_contiguous() const;    // itself if contiguous, else a copy
  Tensor clone() const;            // a contiguous copy
  Tensor to(DType dtype) const;    // itself if it has that dtype, else a converted copy
  Tensor to(Device device) const;  // itself if it is there, else a contiguous copy

 private:
  // Whether storage_ points to elements or, for `releasable`, to a Releasable, which has their address.
  enum class StorageKind : uint8_t { owned, borrowed, releasable };
  struct Releasable;

  static Tensor without_storage(const Shape& shape, DType dtype, Device device);
  static Tensor from_bytes(const void* bytes, size_t count, DType dtype, const Shape& shape);
  void* address(DType expected) const;
  void* pointer() const;
  Releasable& releasable() const;
  int64_t checked_numel() const;

  std::shared_ptr<void> storage_;
  int64_t offset_ = 0;  // elements
  Shape shape_, strides_;
  DType dtype_ = DType::f32;
  Device device_;
  StorageKind kind_ = StorageKind::owned;
};

}  // namespace elinvar
