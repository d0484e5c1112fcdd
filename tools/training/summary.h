#pragma once
// A step's summary for TensorBoard, encoded as a Summary (tensorflow/core/framework/summary.proto) of tagged values in
// forms that every version of TensorBoard reads: simple_value, histo, image, and text as a tensor of one string.
#include <span>
#include <string>
#include <vector>

#include "data/image.h"
#include "tools/training/protobuf.h"

namespace elinvar {

// Counts values in buckets whose limits are the floats with two bits of mantissa: four buckets an octave for either
// sign. Values that are not finite are left out.
struct Histogram {
  double min = 0, max = 0, count = 0, sum = 0, sum_squares = 0;
  // Bucket i holds values above limits[i - 1] (any value for i = 0) and not above limits[i]. A positive value equal to
  // a limit is in the next bucket. Empty buckets at the ends are absent; adjacent empty buckets are merged.
  std::vector<double> limits, counts;
};
Histogram histogram_of(std::span<const float> values);

class Summary {
 public:
  void scalar(const std::string& tag, double value);
  void histogram(const std::string& tag, const Histogram& histogram);
  void image(const std::string& tag, const Image& image);  // 1 or 3 channels, encoded as PNG
  // Shows text verbatim, not as Markdown: TensorBoard sees a block of code. Bytes that are not UTF-8, which a network
  // may generate, become replacement characters.
  void text(const std::string& tag, const std::string& text);

  bool empty() const { return message_.bytes().empty(); }
  const std::string& bytes() const { return message_.bytes(); }

 private:
  ProtoMessage message_;
};

}  // namespace elinvar
