#pragma once
// Parts of a micro-batch's passes (pipeline parallelism). A stage of a pipeline computes some segments of a network
// (nn/segments.h): the forward pass from the value that the segment before gives, and later the backward pass from the
// gradient of the value that it gave itself. Several micro-batches may be between their two passes. Values and
// gradients have the bits of passes over the whole network (NUMERICS.md, rule 28). With a Residence the parameters of
// at most two segments are in memory at a time, in both passes.
#include <functional>
#include <vector>

#include "nn/micro_batch.h"
#include "nn/segments.h"

namespace elinvar {

// Segments [begin, end) of a network.
struct SegmentRange {
  size_t begin = 0, end = 0;
};

// The input of a segment: the value of the segment before it, and the generator of the next random numbers.
struct Boundary {
  Tensor value;
  Rng rng;
};

// The passes of one micro-batch through adjacent segments.
class SegmentPasses {
 public:
  struct Options {
    Recompute recompute = {};
    ShardGroup* group = &local_shards();
    Residence* residence = nullptr;   // null: all parameters are in memory
    std::vector<Tensor> inputs = {};  // Inputs::further
  };
  // Runs the forward pass. `from` has the first input if the first segment is among these. Segments that include the
  // head give the loss of `targets`, the others ignore them.
  SegmentPasses(const SegmentedNetwork& network, SegmentRange range, const Boundary& from, const Targets& targets,
                const Task& task, const Options& options);

  // Both until the backward pass.
  Boundary to() const { return {parts_.back().result.value(), context_.rng}; }  // of segments without the head
  const Tensor& loss() const { return parts_.back().result.value(); }           // of segments with the head
  const Tensor& top1() const { return top1_; }                                  // .. LossAndTop1::top1
  std::vector<Statistic> take_statistics() { return std::move(context_.statistics); }
  std::vector<SegmentRun> take_segments() { return std::move(context_.segments); }

  // Runs the backward pass, once. `dy` is the gradient of to(); undefined with the head. Adds to the micro-batch's
  // gradients, in the order of Parameters::list, of which later segments may have made some; undefined is zero. Calls
  // `ready` for each as soon as these segments have added their last contribution. Returns the gradient of the
  // value of the segment before, or an undefined tensor for the first segment.
  Tensor backward(Tensor dy, std::vector<Tensor>& gradients, const std::function<void(size_t parameter)>& ready = {});

 private:
  // Segments whose records are swept together: all, or with a Residence each alone.
  struct Part {
    SegmentRange range;
    Var from, result;
  };
  Var forward(SegmentRange range, const Var& from, const Targets& targets, const Task& task);
  void sweep(Part& part, Tensor dy, std::vector<Tensor>& gradients, const std::function<void(size_t)>& ready);
  bool awaits(size_t parameter) const;  // whether parts that are not swept yet read it

  const SegmentedNetwork& network_;
  Context context_;
  std::vector<Part> parts_;  // those that are not swept yet
  Tensor top1_;
};

}  // namespace elinvar
