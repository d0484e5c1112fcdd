// MNIST's files, plain or packed: the length of the images' file (two bytes), that file, and the labels' file.
#include <algorithm>
#include <vector>

#include "data/dataset.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

const FuzzTarget kIdx("idx", [](std::string_view bytes) {
  if (bytes.size() < 2) return;
  const size_t length = static_cast<unsigned char>(bytes[0]) | static_cast<size_t>(static_cast<unsigned char>(bytes[1]))
                                                                   << 8;
  bytes.remove_prefix(2);
  const auto images = fuzz_file("mnist/train-images-idx3-ubyte", bytes.substr(0, length));
  fuzz_file("mnist/train-labels-idx1-ubyte", bytes.substr(std::min(length, bytes.size())));
  const auto data = open_dataset({.kind = "mnist", .path = images.parent_path().string()}, Split::train);
  std::vector<float> pixels(static_cast<size_t>(data->input_shape().numel()));
  int64_t label = 0;
  for (const int64_t i : {int64_t{0}, data->size() - 1}) data->read(i, {}, {pixels.data(), &label});
  must(label >= 0 && label < data->classes(), "a label is one of the classes");
});

}  // namespace
}  // namespace elinvar::test
