// Tables of numbers, categories and classes.
#include "data/dataset.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

const FuzzTarget kTable("table", [](std::string_view bytes) {
  const auto file = fuzz_file("rows.csv", bytes);
  DataConfig config{.kind = "table",
                    .path = file.string(),
                    .validation_fraction = 0.5,
                    .target = {"y"},
                    .numbers = {"x"},
                    .categories = {"c"}};
  config.labels = !bytes.empty() && bytes.back() == '\n';
  const auto data = open_dataset(config, Split::train);
  float number = 0, target = 0;
  int32_t category = 0;
  int64_t label = 0;
  for (int64_t i = 0; i < data->size(); ++i)
    data->read(i, {}, {{&number, &category}, config.labels ? static_cast<void*>(&label) : &target});
  must(category >= 0 && category < data->format().inputs[1].symbols[0], "a category is one of the column's");
  must(!config.labels || (label >= 0 && label < data->classes()), "a label is one of the classes");
});

}  // namespace
}  // namespace elinvar::test
