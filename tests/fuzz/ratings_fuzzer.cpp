// Ratings in the forms of MovieLens' files.
#include "data/dataset.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

const FuzzTarget kRatings("ratings", [](std::string_view bytes) {
  const char* const name = bytes.starts_with("userId")                  ? "ratings.csv"
                           : bytes.find("::") != std::string_view::npos ? "ratings.dat"
                                                                        : "u.data";
  const auto file = fuzz_file(name, bytes);
  const auto data = open_dataset({.kind = "ratings", .path = file.string(), .negatives = 2}, Split::train);
  const std::vector<int64_t> limits = data->format().inputs.at(0).symbols;
  for (int64_t i = 0; i < data->size(); ++i) {
    int32_t pairs[6];
    float targets[3];
    data->read(i, {.seed = 1, .augment = true}, {pairs, targets});
    for (int k = 0; k < 6; ++k) must(pairs[k] >= 0 && pairs[k] < limits[static_cast<size_t>(k % 2)], "an index is one");
    must(targets[0] == 1 && targets[1] == 0 && targets[2] == 0, "the first candidate is the choice");
    must(pairs[1] != pairs[3] && pairs[1] != pairs[5], "no other candidate is the choice");
  }
});

}  // namespace
}  // namespace elinvar::test
