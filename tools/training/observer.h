#pragma once
// What the first worker of a job shows of its tensors, as [tensorboard] of the configuration says: histograms of
// parameters and gradients, images of inputs, text that the network goes on with. It only looks: no state, no random
// numbers and no batch of the run are touched.
#include "elastic/step/step.h"
#include "tools/training/summary.h"
#include "tools/training/training.h"

namespace elinvar {

class Observer {
 public:
  // UsageError for what the data do not have.
  explicit Observer(const Training& training);
  // Whether there is something to show after so many updates.
  bool due(int64_t step) const;
  // After update `step`: its batch, and what it was made with. The bytes of a Summary (tools/training/summary.h).
  std::string look(int64_t step, const Cursor& batch, const Reduced& reduced) const;

 private:
  void add_histograms(Summary& summary, const Reduced& reduced) const;
  void add_images(Summary& summary, const Cursor& batch) const;
  void add_text(Summary& summary) const;

  const Training& training_;
  const TensorBoardConfig& config_;
};

// Pixels of any range, stretched to that of a byte. (H, W, C) with 1 or 3 channels, on the CPU.
Image picture_of(const Tensor& pixels);

}  // namespace elinvar
