#pragma once
// A short list of extents (or strides), kept inline so that shapes cost no allocation.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace elinvar {

class Shape {
 public:
  static constexpr int kMaxDims = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);
  static Shape filled(int ndim, int64_t value);

  int ndim() const { return ndim_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return dims_[static_cast<size_t>(i)]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + ndim_; }
  int64_t back() const { return dims_[static_cast<size_t>(ndim_ - 1)]; }

  int64_t numel() const;
  void push_back(int64_t extent);
  void erase(int i);
  void insert(int i, int64_t extent);
  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxDims> dims_{};
  int ndim_ = 0;
};

// Row-major strides, in elements.
Shape contiguous_strides(const Shape& shape);

// The shape that a and b broadcast to, aligned at the last dimension (NumPy's rule); throws UsageError
// naming `op` if they do not.
Shape broadcast(const Shape& a, const Shape& b, const char* op);

// Maps a dimension counted from the end (-1 is the last) to one counted from the front; throws if out of range.
int normalize_dim(int dim, int ndim, const char* op);

std::string to_string(const Shape& shape);  // "(2, 3, 4)"

}  // namespace elinvar
