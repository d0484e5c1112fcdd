#pragma once
// Queues of work beside a GPU's stream: what is called there runs while the device is at what was called before, as the
// sums of gradients do beside the rest of a backward pass. A device has two, since one of them may have to wait for
// other devices, or for ever, and what the stream needs must not wait behind that.
//
//   {
//     const SideQueue side(device, SideQueue::Of::gradients);
//     side.follow(since);      // a mark in a graph, or nothing: after all that was called on the stream so far
//     ... ops ...              // are called on the queue
//   }
//   ... ops that are called on the stream, and run at the same time ...
//   SideQueue::join(device, SideQueue::Of::gradients);  // what is called on the stream from now on runs after that
//
// Memory belongs to the stream or the queue for which it was allocated, and is handed out again there alone. So who
// lets go of the stream's, while a queue writes to it, joins first; and who lets go of a queue's, while the stream uses
// it, gives the queue nothing more that does not follow that. Where the host has seen that the work is done, neither
// counts. For the CPU there are no queues, and nothing happens.
#include "tensor/transfer.h"

namespace elinvar {

class SideQueue {
 public:
  enum class Of { gradients, transfers };
  // As long as it is in scope this thread calls ops of the device there.
  SideQueue(Device device, Of what);
  ~SideQueue();
  SideQueue(const SideQueue&) = delete;
  SideQueue& operator=(const SideQueue&) = delete;

  void follow(const Mark& since = {}) const;
  void follow(Of other) const;  // what was called there
  static void join(Device device, Of what);

 private:
  Device device_;
  Of what_;
  void* before_ = nullptr;  // the stream that this thread's calls went to instead of the device's
};

// Of a device, for the above. What is called on `next` from now on waits for what was called on `first`, or for the
// mark alone.
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
