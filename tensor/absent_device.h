#pragma once
// Defines a kind of GPU that the build leaves out: there are no devices of that kind, and the use of one is a
// UsageError. absent_kernels.cmake defines the kernels.
#include "tensor/stream.h"

namespace elinvar {

template <class B>
constexpr Device kAbsent{std::is_same_v<B, Cuda> ? DeviceKind::cuda : DeviceKind::emulated};

template <class B>
GpuStream<B>::GpuStream(int index, bool recording) : index_(index), recording_(recording) {
  refuse(kAbsent<B>);
}
template <class B>
GpuStream<B>::~GpuStream() {}
template <class B>
std::shared_ptr<void> GpuStream<B>::allocate(size_t) {
  refuse(kAbsent<B>);
}
template <class B>
void GpuStream<B>::give_back() {}
template <class B>
void GpuStream<B>::copy_in(void*, const void*, size_t) {
  refuse(kAbsent<B>);
}
template <class B>
void GpuStream<B>::copy_out(void*, const void*, size_t) {
  refuse(kAbsent<B>);
}
template <class B>
void GpuStream<B>::synchronize() {}

}  // namespace elinvar
