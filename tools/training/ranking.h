#pragma once
// How high a classifier ranks the right class: top-5 accuracy, and which classes it takes for which.
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

class Ranking {
 public:
  // `pairs`: counts for each pair of classes, too.
  Ranking(int64_t classes, int64_t ignored, bool pairs);

  // logits (.., classes) float32, targets (..) int64. Of equal logits the lower class ranks higher; NaN ranks last.
  void add(const Tensor& logits, const Tensor& target);

  double top(int n) const;  // the share of targets among the n highest, n <= 5
  // A line a class: its name, and how often it was taken for each; first a line of names. Names may be empty.
  std::string csv(const std::vector<std::string>& names) const;

 private:
  static constexpr int kMost = 5;
  int64_t classes_, ignored_, counted_ = 0;
  int64_t ranked_[kMost] = {};  // targets at each rank
  std::vector<int64_t> pairs_;  // (classes, classes): right, taken for
};

}  // namespace elinvar
