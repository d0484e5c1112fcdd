#pragma once
// The boxes that the task of kind "detection" (nn/task_detection.cpp) finds in images.
#include <vector>

#include "nn/boxes.h"
#include "tensor/tensor.h"

namespace elinvar {

class Detector {
 public:
  virtual ~Detector() = default;
  // Returns the detections in each image, in descending order of scores, for a network's output (N, rows, 5 + classes).
  // Boxes are in shares of the image's sides, and may reach beyond it.
  virtual std::vector<std::vector<Detection>> detect(const Tensor& output) const = 0;
};

}  // namespace elinvar
