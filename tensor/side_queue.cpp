#include "tensor/side_queue.h"

#include <utility>

namespace elinvar {
namespace {

// Calls f(stream) with the GPU's stream to which this thread's calls go.
template <class F>
void on_current(Device device, F&& f) {
  on(device, [&](auto& stream) {
    if constexpr (!std::is_same_v<decltype(stream), CpuStream&>) f(stream);
  });
}

// Calls f(stream) with the device's own stream, wherever this thread's calls go.
template <class F>
void on_gpu(Device device, F&& f) {
  on_current(device, [&]<class B>(GpuStream<B>&) {
    GpuStream<B>* const before = std::exchange(recorded_on<B>(), nullptr);
    GpuStream<B>& stream = gpu_stream<B>(device.index);
    recorded_on<B>() = before;
    f(stream);
  });
}

}  // namespace

SideQueue::SideQueue(Device device, Of what) : device_(device), what_(what) {
  on_gpu(device, [this]<class B>(GpuStream<B>& stream) {
    before_ = std::exchange(recorded_on<B>(), &side_stream<B>(stream.index(), what_));
  });
}

SideQueue::~SideQueue() {
  on_current(device_, [this]<class B>(GpuStream<B>&) { recorded_on<B>() = static_cast<GpuStream<B>*>(before_); });
}

void SideQueue::follow(const Mark& since) const {
  on_gpu(device_, [&]<class B>(GpuStream<B>& stream) { order(stream, side_stream<B>(stream.index(), what_), since); });
}

void SideQueue::follow(Of other) const {
  on_gpu(device_, [&]<class B>(GpuStream<B>& stream) {
    order(side_stream<B>(stream.index(), other), side_stream<B>(stream.index(), what_), {});
  });
}

void SideQueue::join(Device device, Of what) {
  on_gpu(device, [what]<class B>(GpuStream<B>& stream) { order(side_stream<B>(stream.index(), what), stream, {}); });
}

}  // namespace elinvar
