#pragma once
// How high a classifier ranks the right class: top-5 accuracy, and the confusion matrix.
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

class Ranking {
 public:
  // `pairs` also counts each pair of right class and predicted class.
  Ranking(int64_t classes, int64_t ignored, bool pairs);

  // Adds logits (.., classes) float32 and targets (..) int64. Among equal logits the lower class ranks higher; NaN
  // ranks last.
  void add(const Tensor& logits, const Tensor& target);

  double top(int n) const;  // the fraction of targets among the n highest, n <= 5
  // Returns a line of class names, then a line for each class: its name, and how often it was predicted as each class.
  // `names` may be empty.
  std::string csv(const std::vector<std::string>& names) const;

 private:
  static constexpr int kMost = 5;
  int64_t classes_, ignored_, counted_ = 0;
  int64_t ranked_[kMost] = {};  // the number of targets at each rank
  std::vector<int64_t> pairs_;  // (classes, classes): right class, predicted class
};

}  // namespace elinvar
