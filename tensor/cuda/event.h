#pragma once
// Places in the queue of a stream that another, or the host, can wait for.
#include <cuda_runtime.h>

#include <memory>

#include "tensor/cuda/error.h"

namespace elinvar {

class Event {
 public:
  // After what was queued. `external`: the place is one in the graph that is recorded on the stream, and others wait
  // for it when that is launched.
  explicit Event(cudaStream_t after, bool external = false) {
    require(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
    require(cudaEventRecordWithFlags(event_, after, external ? cudaEventRecordExternal : cudaEventRecordDefault),
            "recording an event");
  }
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }  // those that wait for it still do
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool done() const {
    const cudaError_t answer = cudaEventQuery(event_);
    if (answer != cudaErrorNotReady) {
      require(answer, "a copy");
      return true;
    }
    static_cast<void>(cudaGetLastError());  // or the next launch would be told of it
    return false;
  }
  void wait() const { require(cudaEventSynchronize(event_), "waiting for a copy"); }
  cudaError_t hold(cudaStream_t queue) const { return cudaStreamWaitEvent(queue, event_, 0); }

 private:
  cudaEvent_t event_ = nullptr;
};
using SharedEvent = std::shared_ptr<const Event>;

}  // namespace elinvar
