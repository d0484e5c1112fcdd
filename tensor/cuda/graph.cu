// Graphs by stream capture.
#include "tensor/graph.h"

#include <cuda_runtime.h>

#include <exception>
#include <map>
#include <mutex>

#include "tensor/base/failure.h"
#include "tensor/cuda/event.h"

namespace elinvar {

void check_launch(const char* name, int error);  // kernel.h

namespace {

cudaStream_t queue_of(CudaStream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

class CapturedGraph final : public RecordedWork {
 public:
  CapturedGraph(CudaStream& stream, cudaGraph_t graph) : queue_(queue_of(stream)) {
    const cudaError_t answer = cudaGraphInstantiate(&ready_, graph, 0);
    static_cast<void>(cudaGraphDestroy(graph));
    require(answer, "making a graph ready");
  }
  ~CapturedGraph() override {
    static_cast<void>(cudaStreamSynchronize(queue_));  // it may be running
    static_cast<void>(cudaGraphExecDestroy(ready_));
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void launch() override { check_launch("a graph", cudaGraphLaunch(ready_, queue_)); }

 private:
  cudaStream_t queue_;
  cudaGraphExec_t ready_ = nullptr;
};

}  // namespace

// One per device, never destroyed: libraries have handles that belong to a stream.
template <>
CudaStream& recording_stream(int index) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, std::unique_ptr<CudaStream>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudaStream>& stream = all[index];
  if (!stream) stream = std::make_unique<CudaStream>(index, true);
  return *stream;
}

// Relaxed, because the cache, and perhaps libraries, allocate device memory meanwhile. Other threads are unaffected:
// their calls go to the device's own stream.
template <>
std::unique_ptr<RecordedWork> record(CudaStream& stream, const std::function<void()>& work) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  CudaStream& recording = recording_stream<Cuda>(stream.index());
  require(cudaStreamBeginCapture(queue_of(recording), cudaStreamCaptureModeRelaxed), "beginning to record a graph");
  std::exception_ptr thrown;
  recorded_on<Cuda>() = &recording;
  try {
    work();
  } catch (...) {
    thrown = std::current_exception();
  }
  recorded_on<Cuda>() = nullptr;
  cudaGraph_t graph = nullptr;
  const cudaError_t answer = cudaStreamEndCapture(queue_of(recording), &graph);
  if (thrown) {
    static_cast<void>(cudaGetLastError());
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    std::rethrow_exception(thrown);
  }
  require(answer, "recording a graph");
  return std::make_unique<CapturedGraph>(stream, graph);
}

template <>
Mark mark(CudaStream& recording, std::span<const Tensor>) {
  return std::make_shared<const Event>(queue_of(recording), true);
}

}  // namespace elinvar
