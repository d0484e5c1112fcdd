#pragma once
// Fills and copies, with conversion between element types and any strides on both sides. float to bf16 rounds to
// nearest even; float to integer truncates toward zero (out of range and NaN give 0); integers wrap.
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

struct CopyArgs {
  In x;
  Out y;
  Shape shape, x_strides, y_strides;
};
void copy(CpuStream&, const CopyArgs&);
template <class B>
void copy(GpuStream<B>&, const CopyArgs&);

struct FillArgs {
  Out y;
  Shape shape, y_strides;
  double value;
};
void fill(CpuStream&, const FillArgs&);
template <class B>
void fill(GpuStream<B>&, const FillArgs&);

// The shapes must be equal, or `from` must broadcast to `to`. Also copies between devices.
void copy(const Tensor& from, Tensor& to);
void fill(Tensor& y, double value);

}  // namespace elinvar
