// Tables of numbers, categories and classes.
#include "data/dataset.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

constexpr int64_t kMostIds = 3;  // of a field, for files of an odd size

const FuzzTarget kTable("table", [](std::string_view bytes) {
  const auto file = fuzz_file(bytes.starts_with('{') ? "rows.jsonl" : "rows.csv", bytes);
  DataConfig config{.kind = "table",
                    .path = file.string(),
                    .validation_fraction = 0.5,
                    .target = {"y"},
                    .numbers = {"x"},
                    .categories = {"c"}};
  config.labels = !bytes.empty() && bytes.back() == '\n';
  config.most_ids = {bytes.size() % 2 == 0 ? 1 : kMostIds};
  const auto data = open_dataset(config, Split::train);
  float number = 0, target = 0;
  int32_t categories[kMostIds] = {};
  int64_t label = 0;
  for (int64_t i = 0; i < data->size(); ++i)
    data->read(i, {}, {{&number, categories}, config.labels ? static_cast<void*>(&label) : &target});
  for (int64_t k = 0; k < config.most_ids[0]; ++k)
    must(categories[k] >= (config.most_ids[0] > 1 ? -1 : 0) && categories[k] < data->format().inputs[1].symbols[0],
         "a category is one of the column's");
  must(!config.labels || (label >= 0 && label < data->classes()), "a label is one of the classes");
});

}  // namespace
}  // namespace elinvar::test
