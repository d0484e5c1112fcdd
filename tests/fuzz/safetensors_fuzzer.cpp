// Tensors in one file, and in a file that an index names.
#include "models/published.h"
#include "tensor/safetensors.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

const FuzzTarget kSafetensors("safetensors", [](std::string_view bytes) {
  const SafetensorsContents contents = read_safetensors(fuzz_file("a.safetensors", bytes));
  int64_t held = 0;
  for (const auto& [name, tensor] : contents.tensors) held += tensor.bytes();
  must(held <= 2 * static_cast<int64_t>(bytes.size()), "tensors hold no more than the file, float16 twice as much");
});

const FuzzTarget kPublished("published", [](std::string_view bytes) {
  const auto index = fuzz_file("published/model.safetensors.index.json", next_part(bytes));
  fuzz_file("published/a.safetensors", bytes);
  (void)read_published(index);
});

}  // namespace
}  // namespace elinvar::test
