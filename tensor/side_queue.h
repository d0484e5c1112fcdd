#pragma once
// Additional queues of work for a GPU, which run at the same time as its stream: sums of gradients run during the rest
// of a backward pass. A device has two queues, because one of them may have to wait for other devices, possibly
// forever, and work that the stream needs must not wait behind that.
//
//   {
//     const SideQueue side(device, SideQueue::Of::gradients);
//     side.follow(since);      // a mark in a graph, or nothing: after all that was called on the stream so far
//     ... ops ...              // are called on the queue
//   }
//   ... ops that are called on the stream, and run at the same time ...
//   SideQueue::join(device, SideQueue::Of::gradients);  // what is called on the stream from now on runs after that
//
// Memory belongs to the stream or the queue for which it was allocated, and is reused only there. So before you release
// memory of the stream that a queue writes to, call join(); and after you release memory of a queue that the stream
// uses, call follow() before the queue gets more work. Neither is needed once the host has seen that the work is done.
// On the CPU there are no queues, and these functions do nothing.
#include "tensor/transfer.h"

namespace elinvar {

class SideQueue {
 public:
  enum class Of { gradients, transfers };
  // While the object lives, this thread calls ops of the device on this queue.
  SideQueue(Device device, Of what);
  ~SideQueue();
  SideQueue(const SideQueue&) = delete;
  SideQueue& operator=(const SideQueue&) = delete;

  void follow(const Mark& since = {}) const;
  void follow(Of other) const;  // after the calls on that queue
  static void join(Device device, Of what);

 private:
  Device device_;
  Of what_;
  void* before_ = nullptr;  // the stream that replaced the device's for this thread's calls before
};

// Make later calls on `next` wait for earlier ones on `first`, or only for the mark; defined for each kind of device.
template <class B>
GpuStream<B>& side_stream(int index, SideQueue::Of what);
template <>
CudaStream& side_stream(int index, SideQueue::Of what);
template <>
EmulatedStream& side_stream(int index, SideQueue::Of what);
template <class B>
void order(GpuStream<B>& first, GpuStream<B>& next, const Mark& since);
template <>
void order(CudaStream& first, CudaStream& next, const Mark& since);
template <>
void order(EmulatedStream& first, EmulatedStream& next, const Mark& since);

}  // namespace elinvar
