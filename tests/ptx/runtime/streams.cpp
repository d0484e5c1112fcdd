// Streams, events and graphs of CUDA's runtime.
#include <cuda_runtime.h>

#include <memory>
#include <utility>

#include "tests/ptx/runtime/queue.h"

using elinvar::ptx::scheduled;
using elinvar::ptx::Scheduler;
using elinvar::ptx::stream_of;

namespace {

const Scheduler::Event& event_of(cudaEvent_t event) { return *reinterpret_cast<Scheduler::Event*>(event); }
Scheduler::Graph& graph_of(void* graph) { return *static_cast<Scheduler::Graph*>(graph); }

// Calls f with the scheduler, and returns cudaSuccess.
template <class F>
cudaError_t successful(F&& f) {
  scheduled(f);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags != cudaStreamNonBlocking) elinvar::ptx::die("a stream that waits for the default stream");
  *stream = reinterpret_cast<cudaStream_t>(new Scheduler::Stream{.device = elinvar::ptx::chosen_device()});
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &stream_of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return successful([&](Scheduler& scheduler) { scheduler.synchronize(stream_of(stream)); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return successful([&](Scheduler& scheduler) { scheduler.wait(stream_of(stream), event_of(event)); });
}
cudaError_t cudaDeviceSynchronize() {
  return successful([](Scheduler& scheduler) { scheduler.synchronize(elinvar::ptx::chosen_device()); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Scheduler::Event(std::make_shared<Scheduler::Recorded>()));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return successful([&](Scheduler& scheduler) {
    scheduler.record(event_of(event), stream_of(stream), flags == cudaEventRecordExternal);
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const bool done = scheduled([&](Scheduler& scheduler) { return scheduler.done(event_of(event)); });
  return done ? cudaSuccess : elinvar::ptx::noted(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return successful([&](Scheduler& scheduler) { scheduler.synchronize(event_of(event)); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return successful([&](Scheduler& scheduler) { scheduler.begin_capture(stream_of(stream)); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return successful([&](Scheduler& scheduler) {
    *graph = reinterpret_cast<cudaGraph_t>(new Scheduler::Graph(scheduler.end_capture(stream_of(stream))));
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  *ready = reinterpret_cast<cudaGraphExec_t>(new Scheduler::Graph(graph_of(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &graph_of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) {
  delete &graph_of(ready);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream) {
  return successful([&](Scheduler& scheduler) { scheduler.launch(graph_of(ready), stream_of(stream)); });
}

}  // extern "C"
