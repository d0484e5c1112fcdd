#pragma once
// Records the work of a GPU once and then launches it as a whole by one call: a CUDA graph. See Note [Graphs] in
// README.md.
//
//   const Graph graph(device, {.tensors = {image, targets}, .rng = rng}, [&](std::span<const Tensor> given) {
//     loss = ... ops on `given` and on tensors that exist already ...
//   });
//   graph.replay({.tensors = {next_image, next_targets}, .rng = next_rng});
//   Download value(loss);
//
// Recording computes nothing; it keeps only the arguments of ops and the addresses of their results. Ops allocate from
// memory that belongs to graphs, at the same address in every replay. A tensor that the work hands out, such as `loss`,
// is valid until the next replay of any graph, which may overwrite it: copy it, or wait for its download, before then.
// A tensor that the work reads, but that is not an input, must keep its address while the graph is used, as parameters
// do; a replay reads the elements that it has at that time.
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tensor/philox.h"
#include "tensor/tensor.h"
#include "tensor/transfer.h"

namespace elinvar {

// The values that may differ between replays. Shapes, types and devices may not.
struct GraphInputs {
  std::vector<Tensor> tensors;  // on the device, or on the CPU as arguments of derived()
  Rng rng = {};                 // op must be that of the recorded work
};

// Work that has been recorded on a stream.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void launch() = 0;  // runs on the device's stream, after earlier calls there
};

class Graph {
 public:
  // Calls `work` with tensors for the inputs: copies of those on the device, at fixed addresses, and the others
  // unchanged. Throws what `work` throws, and Failure if there is no memory or if `work` does what cannot be recorded:
  // copies from and to the host, waiting for the device, random numbers of another key.
  Graph(Device device, const GraphInputs& inputs, const std::function<void(std::span<const Tensor> given)>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(const GraphInputs& inputs);

  struct Parts;

 private:
  std::unique_ptr<Parts> parts_;
};

// In recorded work, returns the place after the calls so far, at which these tensors are complete, so that copies of
// them can begin while the rest of the graph still runs. Elsewhere returns null.
Mark mark(std::span<const Tensor> complete);

// Returns the tensors that `make` makes from others; all are on the CPU. In recorded work, those others must be inputs
// of the graph or derived themselves; each replay calls `make` again and repeats the work's copies of the results to
// the device.
using Make = std::function<std::vector<Tensor>(std::span<const Tensor> from)>;
std::vector<Tensor> derived(std::vector<Tensor> from, const Make& make);

// In recorded work, returns `here` on the device. It is sent only once, so it must not change. Elsewhere returns an
// undefined tensor.
Tensor graph_constant(const Tensor& here, Device device);

// In recorded work, returns an Rng on the device that holds the key of a random number, without its op. Elsewhere
// returns null.
const Rng* key_on_device(const Rng& rng);

// For copies to the device (ops/copy.cpp). In recorded work, makes each replay repeat this copy and returns true;
// throws Failure if the elements are neither an input's nor derived.
bool sent_by_graph(const Tensor& here, const Tensor& there);

// Records the calls of `work` on the stream in this thread; defined for each kind of device.
template <class B>
std::unique_ptr<RecordedWork> record(GpuStream<B>& stream, const std::function<void()>& work);
template <class B>
Mark mark(GpuStream<B>& recording, std::span<const Tensor> complete);
template <class B>
GpuStream<B>& recording_stream(int index);
template <>
CudaStream& recording_stream(int index);
template <>
EmulatedStream& recording_stream(int index);

}  // namespace elinvar
