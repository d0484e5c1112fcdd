#pragma once
// The tensors that the first worker of a job shows, as [tensorboard] of the configuration asks: histograms of
// parameters and gradients, images of inputs, and text that the network generates. The observer only reads: it changes
// no state, draws no random number of the run and takes none of its batches.
#include "elastic/step/step.h"
#include "tools/training/summary.h"
#include "tools/training/training.h"

namespace elinvar {

class Observer {
 public:
  // Throws UsageError if the configuration asks for something that the data do not have.
  explicit Observer(const Training& training);
  // Returns whether there is something to show after `step` updates.
  bool due(int64_t step) const;
  // Returns the bytes of a Summary (tools/training/summary.h) of update `step`, its batch and its reduction.
  std::string look(int64_t step, const Cursor& batch, const Reduced& reduced) const;

 private:
  void add_histograms(Summary& summary, const Reduced& reduced) const;
  void add_images(Summary& summary, const Cursor& batch) const;
  void add_text(Summary& summary) const;

  const Training& training_;
  const TensorBoardConfig& config_;
};

// Stretches pixels of any range to the range of a byte. `pixels` is (H, W, C) with 1 or 3 channels, on the CPU.
Image picture_of(const Tensor& pixels);

}  // namespace elinvar
