#include "data/dataset.h"

#include <filesystem>
#include <new>

#include "data/image_dataset.h"
#include "data/text.h"
#include "tensor/base/registry.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"

namespace elinvar {
namespace {

template <ImageParts open(const DataConfig&)>
std::unique_ptr<Dataset> images(const DataConfig& config, Split split) {
  return open_image_dataset(config, open(config), split);
}

using Open = std::unique_ptr<Dataset>(const DataConfig&, Split, DataConfig* resolved);

struct Kind {
  std::string name;
  std::function<Open> open;
};

// Returns a built-in kind; `needs_path` says whether it requires a path.
Kind built_in(const char* name, std::unique_ptr<Dataset> (*open)(const DataConfig&, Split), bool needs_path) {
  return {name, [=](const DataConfig& config, Split split, DataConfig*) {
            check_setting(!needs_path || !config.path.empty(), "data.path", "is missing: '{}' needs one", config.kind);
            return open(config, split);
          }};
}

Registry<Kind>& registry() {
  static Registry<Kind> all({
      built_in("cifar10", images<open_cifar10>, true),
      built_in("image_folder", images<open_image_folder>, true),
      built_in("mnist", images<open_mnist>, true),
      built_in("synthetic", images<open_synthetic_images>, false),
      built_in("synthetic_text", open_synthetic_text, false),
      built_in("text", open_text, true),
      built_in("tokens", open_tokens, true),
      built_in("webdataset", images<open_webdataset>, true),
  });
  return all;
}

// Exceptions of the standard library do not say which data set was being opened, so they are replaced by a Failure
// that does.
std::unique_ptr<Dataset> opened(const Kind& kind, const DataConfig& config, Split split, DataConfig* resolved) {
  try {
    return kind.open(config, split, resolved);
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

std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Split split, DataConfig* resolved) {
  check_setting(config.validation_fraction >= 0 && config.validation_fraction < 1, "data.validation_fraction",
                "must be in [0, 1), got {}", config.validation_fraction);
  const Kind* kind = registry().find(config.kind);
  check_setting(kind != nullptr, "data.kind", "does not know '{}'{}", config.kind,
                spelling_hint(config.kind, registry().names()));
  DataConfig complete = config;
  std::unique_ptr<Dataset> dataset = opened(*kind, config, split, &complete);
  if (resolved != nullptr) *resolved = std::move(complete);
  return dataset;
}

void register_dataset(DatasetKind kind) {
  const auto open = [open = std::move(kind.open)](const DataConfig& config, Split split, DataConfig* resolved) {
    Settings settings(config.own, "data", &resolved->own);
    std::unique_ptr<Dataset> dataset = open(settings, split);
    settings.finish();
    check(dataset != nullptr, "[data] kind '{}' opened no data set for the split {}", config.kind, name_of(split));
    return dataset;
  };
  registry().add({std::move(kind.name), open}, "data");
}

bool is_built_in_dataset(std::string_view kind) { return registry().built_in(kind); }

Digest digest(const Dataset& dataset) {
  Hasher hasher;
  dataset.describe(hasher);
  return hasher.digest();
}

}  // namespace elinvar
