#include "data/dataset.h"

#include <filesystem>
#include <new>

#include "data/image_dataset.h"
#include "data/text.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"

namespace elinvar {
namespace {

template <ImageParts open(const DataConfig&)>
std::unique_ptr<Dataset> images(const DataConfig& config, Split split) {
  return open_image_dataset(config, open(config), split);
}

struct Kind {
  std::string_view name;
  std::unique_ptr<Dataset> (*open)(const DataConfig&, Split);
  bool needs_path;
};

constexpr Kind kKinds[] = {
    {"cifar10", images<open_cifar10>, true},
    {"image_folder", images<open_image_folder>, true},
    {"mnist", images<open_mnist>, true},
    {"synthetic", images<open_synthetic_images>, false},
    {"synthetic_text", open_synthetic_text, false},
    {"text", open_text, true},
    {"tokens", open_tokens, true},
    {"webdataset", images<open_webdataset>, true},
};

// Exceptions of the standard library do not say which data set was being opened, so they are replaced by a Failure
// that does.
std::unique_ptr<Dataset> opened(const Kind& kind, const DataConfig& config, Split split) {
  try {
    return kind.open(config, split);
  } catch (const std::filesystem::filesystem_error& error) {
    fail("[data] cannot look at '{}': {}", error.path1().string(), error.code().message());
  } catch (const std::bad_alloc&) {
    fail("[data] there is not enough memory to open '{}'", config.path.empty() ? config.kind : config.path);
  }
}

}  // namespace

const char* name_of(Split split) {
  return split == Split::train ? "train" : split == Split::validation ? "validation" : "test";
}

const std::vector<std::string>& Dataset::class_names() const {
  static const std::vector<std::string> none;
  return none;
}

std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Split split) {
  check_setting(config.validation_fraction >= 0 && config.validation_fraction < 1, "data.validation_fraction",
                "must be in [0, 1), got {}", config.validation_fraction);
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    if (kind.name == config.kind) {
      check_setting(!kind.needs_path || !config.path.empty(), "data.path", "is missing: '{}' needs one", config.kind);
      return opened(kind, config, split);
    }
    names.emplace_back(kind.name);
  }
  check_setting(false, "data.kind", "does not know '{}'{}", config.kind, spelling_hint(config.kind, names));
  return nullptr;
}

Digest digest(const Dataset& dataset) {
  Hasher hasher;
  dataset.describe(hasher);
  return hasher.digest();
}

}  // namespace elinvar
