#pragma once
// What TensorBoard shows of a step, encoded as a Summary (tensorflow/core/framework/summary.proto) of tagged values in
// the forms that every version of TensorBoard reads: simple_value, histo, image, and text as a tensor of one string.
#include <span>
#include <string>
#include <vector>

#include "data/image.h"
#include "tools/training/protobuf.h"

namespace elinvar {

// How often values occur, by buckets whose limits are the floats with two bits of mantissa: four an octave, either
// sign. What is not finite is left out.
struct Histogram {
  double min = 0, max = 0, count = 0, sum = 0, sum_squares = 0;
  // Bucket i holds what is above limits[i - 1] (or is anything, i = 0) and not above limits[i]; for positive values the
  // limit itself is in the next one. Empty ones at the ends are absent, neighbours that are empty are one.
  std::vector<double> limits, counts;
};
Histogram histogram_of(std::span<const float> values);

class Summary {
 public:
  void scalar(const std::string& tag, double value);
  void histogram(const std::string& tag, const Histogram& histogram);
  void image(const std::string& tag, const Image& image);  // of 1 or 3 channels, as PNG
  // Shown as it is, not as Markdown: in TensorBoard's terms a block of code. Bytes that are no UTF-8, as a network may
  // make them, become replacement characters.
  void text(const std::string& tag, const std::string& text);

  bool empty() const { return message_.bytes().empty(); }
  const std::string& bytes() const { return message_.bytes(); }

 private:
  ProtoMessage message_;
};

}  // namespace elinvar
