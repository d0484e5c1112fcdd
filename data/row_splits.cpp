#include "data/row_splits.h"

#include <algorithm>
#include <numeric>

#include "data/held_out.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

struct RowFiles {
  std::vector<fs::path> training, validation, test;
};

RowFiles row_files(const DataConfig& config, const std::function<bool(std::string_view)>& of_kind) {
  if (!fs::is_directory(config.path)) return {.training = {config.path}, .validation = {}, .test = {}};
  RowFiles files;
  for (const fs::directory_entry& entry : fs::directory_iterator(config.path)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") || !of_kind(name)) continue;
    (name.find("val") != name.npos    ? files.validation
     : name.find("test") != name.npos ? files.test
                                      : files.training)
        .push_back(entry.path());
  }
  for (auto* some : {&files.training, &files.validation, &files.test}) std::ranges::sort(*some);
  if (files.training.empty()) fail("[{}] '{}' has no files with rows for training", config.kind, config.path);
  return files;
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> all(static_cast<size_t>(end - begin));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

}  // namespace

SplitRows read_split(const DataConfig& config, Split split, const std::function<bool(std::string_view)>& of_kind,
                     const ReadRows& read) {
  const RowFiles files = row_files(config, of_kind);
  int64_t rows = 0;
  const auto read_all = [&](const std::vector<fs::path>& some) {
    const int64_t before = rows;
    for (const fs::path& file : some) rows = read(file);
    return range(before, rows);
  };
  std::vector<int64_t> training = read_all(files.training), validation = read_all(files.validation);
  const std::vector<int64_t> test = read_all(files.test);
  if (training.empty()) fail("[{}] '{}' has no rows for training", config.kind, config.path);
  if (split == Split::test) {
    check(!test.empty() || !validation.empty(),
          "[{}] '{}' has no test rows; split \"validation\" is held out of its training rows", config.kind,
          config.path);
    return {test.empty() ? validation : test, training};
  }
  if (config.validation_fraction != 0 || validation.empty()) {
    const double fraction = config.validation_fraction == 0 ? 0.1 : config.validation_fraction;
    const int64_t n = std::ssize(training);
    training = held_out(n, fraction, /*training=*/true, "rows");
    validation = held_out(n, fraction, /*training=*/false, "rows");
  }
  return {split == Split::train ? training : validation, training};
}

}  // namespace elinvar
