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
// Recording computes nothing; it keeps only the arguments of ops and the places of their results. Ops allocate from
// memory that belongs to graphs, at the same place in every replay. A tensor that the work hands out, such as `loss`,
// is valid until the next replay of any graph, which may overwrite it: copy it, or wait for its download, before then.
// A tensor that the work reads, but that is not an input, must stay where it is while the graph is used, as parameters
// do; a replay reads the elements that it has at that time.
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tensor/philox.h"
#include "tensor/tensor.h"
#include "tensor/transfer.h"

namespace elinvar {

// What may differ between replays. Shapes, types and devices may not.
struct GraphInputs {
  std::vector<Tensor> tensors;  // on the device, or on the CPU, where derived() makes of them what is sent
  Rng rng = {};                 // its op is that of the recorded work
};

// Work that has been recorded on a stream.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void launch() = 0;  // on the stream of the device, after what was called there
};

class Graph {
 public:
  // Calls `work` with tensors for the inputs: those on the device at places of their own, the others as they are.
  // Throws what the work throws, and Failure where it calls what cannot be recorded: copies from and to the host,
  // waiting for the device, random numbers of another key; or where there is no memory for it.
  Graph(Device device, const GraphInputs& inputs, const std::function<void(std::span<const Tensor> given)>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(const GraphInputs& inputs);

  struct Parts;

 private:
  std::unique_ptr<Parts> parts_;
};

// In recorded work: the place after what was called so far, by which these tensors are complete, for copies of them
// that are to begin while the rest of the graph still runs. Undefined elsewhere.
Mark mark(std::span<const Tensor> complete);

// Tensors on the CPU that are made from others there. In recorded work those others are inputs of the graph, or were
// made in this way: each replay makes them again, and sends what the work sent to the device. Elsewhere, make(from).
using Make = std::function<std::vector<Tensor>(std::span<const Tensor> from)>;
std::vector<Tensor> derived(std::vector<Tensor> from, const Make& make);

// In recorded work the tensor on the device, which was sent once, for ever: it must not change. Undefined elsewhere.
Tensor graph_constant(const Tensor& here, Device device);

// In recorded work the key of a random number, without its op, lies on the device: an Rng. Null elsewhere.
const Rng* key_on_device(const Rng& rng);

// For copies to the device (ops/copy.cpp): in recorded work each replay makes this one, and true is the answer. Failure
// where the elements neither are an input's nor were derived.
bool sent_by_graph(const Tensor& here, const Tensor& there);

// For each kind of device: records what `work` calls on it in this thread.
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
