#pragma once
// An endless dataset whose samples are their own numbers, for tests of how samples are read.
#include "data/dataset.h"

namespace elinvar::test {

class Endless : public Dataset {
 public:
  int64_t size() const override { return int64_t{1} << 40; }
  SampleFormat format() const override { return {.inputs = {{Shape{1}, DType::f32}}, .target = {Shape{}, DType::i64}}; }
  int64_t classes() const override { return size(); }
  void describe(Hasher&) const override {}
  void read(int64_t index, const Draw&, const SampleBuffers& sample) const override {
    reads(index);
    *sample.input<float>() = static_cast<float>(index);
    *sample.target<int64_t>() = index;
  }

 private:
  virtual void reads(int64_t index) const = 0;  // called before each read
};

}  // namespace elinvar::test
