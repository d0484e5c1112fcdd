#include "tools/training/kept_form.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/fields.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "samples.json";

}  // namespace

std::optional<ImageForm> image_form(const Dataset& data) {
  const SampleForm form = form_of(data);
  if (form.shape.ndim() != 3) return std::nullopt;
  return ImageForm{
      .shape = {form.shape.begin(), form.shape.end()}, .classes = form.classes, .class_names = form.class_names};
}

void keep_form(const fs::path& run_directory, const ImageForm& form) {
  const std::string text = write_fields(form).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  replace_file(run_directory / kFile, text + "\n");
}

SampleForm form_of_run(const fs::path& run_directory, const Config& config) {
  const fs::path path = run_directory / kFile;
  std::error_code error;
  if (!fs::exists(path, error)) return form_of(*open_split(config, Split::validation));
  const auto refuse = [&](const std::string& reason) {
    fail("{} is damaged ({}); delete it to read the form from the data set", path.string(), reason);
  };
  ImageForm form;
  try {
    form = read_fields<ImageForm>(read_json_object(path));
  } catch (const UsageError& failure) {
    refuse(failure.what());
  }
  const auto positive = [](int64_t extent) { return extent > 0; };
  if (form.shape.size() != 3 || !std::ranges::all_of(form.shape, positive) || form.classes < 1)
    refuse("expected three positive extents and at least one class");
  return {.shape = Shape(form.shape), .classes = form.classes, .class_names = std::move(form.class_names)};
}

}  // namespace elinvar
