#pragma once
// A place in the queue of a stream for which another stream, or the host, can wait.
#include <cuda_runtime.h>

#include <memory>

#include "tensor/cuda/error.h"

namespace elinvar {

class Event {
 public:
  // The place is after all queued work. With `external` it is in the graph that is being recorded on the stream, and
  // waiting for it begins when the graph is launched.
  explicit Event(cudaStream_t after, bool external = false) {
    require(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
    require(cudaEventRecordWithFlags(event_, after, external ? cudaEventRecordExternal : cudaEventRecordDefault),
            "recording an event");
  }
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }  // pending waits stay valid
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool done() const {
    const cudaError_t answer = cudaEventQuery(event_);
    if (answer != cudaErrorNotReady) {
      require(answer, "a copy");
      return true;
    }
    static_cast<void>(cudaGetLastError());  // or the next launch would report it
    return false;
  }
  void wait() const { require(cudaEventSynchronize(event_), "waiting for a copy"); }
  cudaError_t hold(cudaStream_t queue) const { return cudaStreamWaitEvent(queue, event_, 0); }

 private:
  cudaEvent_t event_ = nullptr;
};
using SharedEvent = std::shared_ptr<const Event>;

}  // namespace elinvar
