#include "tensor/side_queue.h"

#include <utility>

namespace elinvar {
namespace {

// Calls f(stream) with the device's own stream, wherever this thread's calls go.
template <class F>
void on_main_stream(Device device, F&& f) {
  on_gpu(device, [&]<class B>(GpuStream<B>&) {
    GpuStream<B>* const before = std::exchange(recorded_on<B>(), nullptr);
    GpuStream<B>& stream = gpu_stream<B>(device.index);
    recorded_on<B>() = before;
    f(stream);
  });
}

}  // namespace

SideQueue::SideQueue(Device device, Of what) : device_(device), what_(what) {
  on_main_stream(device, [this]<class B>(GpuStream<B>& stream) {
    before_ = std::exchange(recorded_on<B>(), &side_stream<B>(stream.index(), what_));
  });
}

SideQueue::~SideQueue() {
  on_gpu(device_, [this]<class B>(GpuStream<B>&) { recorded_on<B>() = static_cast<GpuStream<B>*>(before_); });
}

void SideQueue::follow(const Mark& since) const {
  on_main_stream(device_,
                 [&]<class B>(GpuStream<B>& stream) { order(stream, side_stream<B>(stream.index(), what_), since); });
}

void SideQueue::follow(Of other) const {
  on_main_stream(device_, [&]<class B>(GpuStream<B>& stream) {
    order(side_stream<B>(stream.index(), other), side_stream<B>(stream.index(), what_), {});
  });
}

void SideQueue::join(Device device, Of what) {
  on_main_stream(device,
                 [what]<class B>(GpuStream<B>& stream) { order(side_stream<B>(stream.index(), what), stream, {}); });
}

}  // namespace elinvar
