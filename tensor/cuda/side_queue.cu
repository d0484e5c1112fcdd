// The side queues of CUDA devices.
#include "tensor/side_queue.h"

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tensor/cuda/event.h"

namespace elinvar {

// Never destroyed.
template <>
CudaStream& side_stream(int index, SideQueue::Of what) {
  static std::mutex mutex;
  static auto& all = *new std::map<std::pair<int, SideQueue::Of>, std::unique_ptr<CudaStream>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudaStream>& stream = all[{index, what}];
  if (!stream) stream = std::make_unique<CudaStream>(index);
  return *stream;
}

template <>
void order(CudaStream& first, CudaStream& next, const Mark& since) {
  const auto queue_of = [](CudaStream& stream) { return static_cast<cudaStream_t>(stream.handle()); };
  if (since) require(static_cast<const Event*>(since.get())->hold(queue_of(next)), "ordering two queues");
  else require(Event(queue_of(first)).hold(queue_of(next)), "ordering two queues");
}

}  // namespace elinvar
