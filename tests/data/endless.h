#pragma once
// An endless dataset whose samples are their own numbers, for tests of how samples are read.
#include "data/dataset.h"

namespace elinvar::test {

class Endless : public Dataset {
 public:
  int64_t size() const override { return int64_t{1} << 40; }
  Shape input_shape() const override { return {1}; }
  DType input_dtype() const override { return DType::f32; }
  Shape target_shape() const override { return {}; }
  int64_t classes() const override { return size(); }
  void describe(Hasher&) const override {}
  void read(int64_t index, const Draw&, void* input, int64_t* target) const override {
    reads(index);
    *static_cast<float*>(input) = static_cast<float>(index);
    *target = index;
  }

 private:
  virtual void reads(int64_t index) const = 0;  // called before each read
};

}  // namespace elinvar::test
