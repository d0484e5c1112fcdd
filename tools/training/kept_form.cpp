#include "tools/training/kept_form.h"

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "samples.json";

}  // namespace

nlohmann::ordered_json form_to_keep(const Dataset& data) {
  const SampleForm form = form_of(data);
  if (form.shape.ndim() != 3) return {};
  return {{"shape", std::vector<int64_t>(form.shape.begin(), form.shape.end())},
          {"classes", form.classes},
          {"class_names", form.class_names}};
}

void keep_form(const fs::path& run_directory, const nlohmann::json& form) {
  replace_file(run_directory / kFile, form.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

SampleForm form_of_run(const fs::path& run_directory, const Config& config) {
  const fs::path path = run_directory / kFile;
  std::error_code error;
  if (!fs::exists(path, error)) return form_of(*open_split(config, Split::validation));
  try {
    const nlohmann::json json = nlohmann::json::parse(read_file(path));
    const auto shape = json.at("shape").get<std::vector<int64_t>>();
    const auto classes = json.at("classes").get<int64_t>();
    if (shape.size() == 3 && *std::ranges::min_element(shape) > 0 && classes > 0)
      return {.shape = Shape(shape),
              .classes = classes,
              .class_names = json.at("class_names").get<std::vector<std::string>>()};
  } catch (const nlohmann::json::exception&) {
  }
  fail("{} is damaged; without it the data set is opened instead", path.string());
}

}  // namespace elinvar
